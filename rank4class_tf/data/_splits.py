"""`Splits`, the form in which datasets are returned."""

import dataclasses
import importlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks


@dataclasses.dataclass(frozen=True)
class Splits:
    """A dataset in three parts, each of batches `(features [batch, ...], class_ids [batch])`.

    Attributes:
        train: the training examples, in a new order each epoch; the order depends on the seed and
            on how often this object was read.
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
    train: Any,
    validation: Any,
    test: Any,
    *,
    batch_size: int,
    seed: int,
    class_names: Iterable[str],
    vocabulary: Iterable[str] = (),
) -> Splits:
    """Builds `Splits` from three pairs of arrays `(features, class_ids)`."""
    batch_size = _checks.positive_int("batch_size", batch_size)

    def batches(arrays, shuffled=False):
        dataset = tf.data.Dataset.from_tensor_slices(arrays)
        if shuffled:
            dataset = dataset.shuffle(len(arrays[1]), seed=_checks.seed(seed))
        return dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE)

    return Splits(
        train=batches(train, shuffled=True),
        validation=batches(validation),
        test=batches(test),
        class_names=tuple(class_names),
        vocabulary=tuple(vocabulary),
    )


def import_extra(module: str) -> Any:
    """Imports a module of the `data` extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This dataset needs `{module}`: pip install -e '.[data]' in a clone of the project. "
            f"Received: {error}."
        ) from None
