"""`Splits`, and helpers for the functions that make them: extras, TFDS, text files."""

import contextlib
import dataclasses
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._types import PathLike


@dataclasses.dataclass(frozen=True)
class Splits:
    """A dataset in three parts of batches `(features [batch, ...], class_ids)`.

    Class ids are `[batch]`, or `[batch, P]` padded with -1.

    Attributes:
        train: the training examples, in a new order each epoch, which depends on the
            seed.
        validation: the examples for choosing a model, always in the same order.
        test: the examples for reporting results, always in the same order.
        class_names: the name of each class; a class id is an index into it.
        vocabulary: for text, the token behind each feature value; empty otherwise.
    """

    train: tf.data.Dataset
    validation: tf.data.Dataset
    test: tf.data.Dataset
    class_names: tuple[str, ...]
    vocabulary: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)


def from_arrays(
    parts: Sequence[tuple[Any, Any]],
    batch_size: int,
    seed: int,
    class_names: Iterable[str],
    vocabulary: Iterable[str] = (),
) -> Splits:
    """Builds `Splits` from three pairs of arrays `(features, class_ids)`."""
    batch_size = _checks.positive_int("batch_size", batch_size)
    datasets = [tf.data.Dataset.from_tensor_slices(part) for part in parts]
    datasets[0] = datasets[0].shuffle(len(parts[0][1]), seed=_checks.seed(seed))
    train, validation, test = (
        x.batch(batch_size).prefetch(tf.data.AUTOTUNE) for x in datasets
    )
    return Splits(train, validation, test, tuple(class_names), tuple(vocabulary))


def import_extra(module: str, extra: str = "data") -> Any:
    """Imports a module of an extra."""
    return _checks.imported(module, f"This dataset needs `{module}`", extra)


def load(name: str, *, data_dir: PathLike | None, source: str, **kwargs: Any) -> Any:
    """Calls `tfds.load`; errors say to fetch `source` by hand if downloading fails."""
    tfds = import_extra("tensorflow_datasets")
    try:
        return tfds.load(name, data_dir=data_dir, **kwargs)
    # TFDS raises AssertionError if files to fetch by hand are missing, OSError if it is
    # offline.
    except (AssertionError, OSError, tfds.download.DownloadError) as error:
        raise FileNotFoundError(
            f"`{name}` is not in data_dir={data_dir!r}, and TensorFlow Datasets cannot "
            f"make it: put {source} into the folder `downloads/manual` of the data "
            f"directory. Received: {error}"
        ) from error


# Bytes that are not text, and what gzip raises for a file that was cut or changed.
DAMAGED = (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile)


@contextlib.contextmanager
def opened(path: PathLike, newline: str | None = None) -> Iterator[TextIO]:
    """Opens a text file for reading, unpacked if `.gz`; raises if it is damaged."""
    opener: Any = gzip.open if str(path).endswith(".gz") else open
    try:
        # Windows may mark UTF-8 by three bytes at the start.
        with opener(path, "rt", encoding="utf-8-sig", newline=newline) as lines:
            yield lines
    except DAMAGED as error:
        raise ValueError(
            f"{path}: must be whole, and text in UTF-8. Received: {error}."
        ) from error


def as_ids(column: Any) -> np.ndarray:
    """Ids as an array of numbers or strings, or of objects if some are neither."""
    # NumPy would make strings of numbers and of missing ids among strings.
    ids = np.asarray(column, object if isinstance(column, list | tuple) else None)
    if ids.dtype != object:
        return ids
    values = ids.tolist()
    is_text = {isinstance(x, str) for x in values}
    return np.array(values) if len(is_text) == 1 else ids
