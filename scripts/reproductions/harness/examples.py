"""Examples in arrays: texts as tokens, or features that were computed once."""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _files, data

# So many batches are sorted by length together: little is padded, and the order stays random.
_SORTED_TOGETHER = 50


@dataclasses.dataclass(frozen=True)
class Examples:
    """Examples of equal or of different lengths.

    Attributes:
        values: `[n, ...]`; or the rows of all examples one after the other, `[sum(lengths), ...]`.
        class_ids: `[n]` or `[n, P]`.
        lengths: `[n]`, how many rows of `values` each example has; None for examples of one shape.
    """

    values: np.ndarray
    class_ids: np.ndarray
    lengths: np.ndarray | None = None

    def __len__(self):
        return len(self.class_ids)

    def batches(self, batch_size: int, seed: int | None = None) -> tf.data.Dataset:
        """Batches `(values, class_ids)`, padded with zeros to the longest example of the batch.

        Args:
            batch_size: examples per batch.
            seed: of the order, which is another one each time the dataset is read; None for
                examples from the shortest to the longest.

        Returns:
            A dataset; integers stay, floats become float32.
        """
        kind = self.values.dtype if self.values.dtype.kind == "i" else np.dtype("float32")
        length = () if self.lengths is None else (None,)
        shape = (None, *length, *self.values.shape[1:])
        starts = None if self.lengths is None else np.cumsum(self.lengths) - self.lengths
        reads = itertools.count()

        def generate():
            rng = None if seed is None else np.random.default_rng([seed, next(reads)])
            for rows in self._order(batch_size, rng):
                yield self._batch(rows, starts, kind), self.class_ids[rows]

        ids = tf.TensorSpec((None, *self.class_ids.shape[1:]), self.class_ids.dtype)
        dataset = tf.data.Dataset.from_generator(
            generate, output_signature=(tf.TensorSpec(shape, kind), ids)
        )
        number = -(-len(self) // batch_size)
        return dataset.apply(tf.data.experimental.assert_cardinality(number)).prefetch(8)

    def _order(self, batch_size, rng) -> Iterator[np.ndarray]:
        """The numbers of the examples of each batch."""
        order = np.arange(len(self)) if rng is None else rng.permutation(len(self))
        if self.lengths is not None:
            step = len(self) if rng is None else _SORTED_TOGETHER * batch_size
            order = np.concatenate(
                [
                    part[np.argsort(self.lengths[part], kind="stable")]
                    for part in (order[i : i + step] for i in range(0, len(self), step))
                ]
            )
        batches = [order[i : i + batch_size] for i in range(0, len(self), batch_size)]
        return (
            batches[i]
            for i in (range(len(batches)) if rng is None else rng.permutation(len(batches)))
        )

    def _batch(self, rows, starts, kind):
        """The values of some examples."""
        if starts is None:
            return self.values[rows].astype(kind)
        lengths = self.lengths[rows]
        batch = np.zeros((len(rows), lengths.max(), *self.values.shape[1:]), kind)
        for row, start, length in zip(batch, starts[rows], lengths, strict=True):
            row[:length] = self.values[start : start + length]
        return batch


def from_datasets(splits: data.Splits) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The features and class ids of each part of a dataset, as arrays."""
    parts = {}
    for name in ("train", "validation", "test"):
        features, class_ids = zip(*getattr(splits, name).as_numpy_iterator(), strict=True)
        parts[name] = np.concatenate(features), np.concatenate(class_ids)
    return parts


def to_splits(
    parts: dict[str, Examples], class_names: tuple[str, ...], batch_size: int, seed: int
) -> data.Splits:
    """Builds `Splits`."""
    return data.Splits(
        train=parts["train"].batches(batch_size, seed),
        validation=parts["validation"].batches(batch_size),
        test=parts["test"].batches(batch_size),
        class_names=class_names,
    )


def through(model: Any, examples: Examples, batch_size: int = 128) -> Examples:
    """The examples as a model in inference gives them.

    Outputs of `[batch, length, ...]` keep the lengths and half precision; others are float32.
    """
    batches = examples.batches(batch_size)
    # The signature has no lengths, so that one graph serves all of them.
    run = tf.function(
        lambda batch: model(batch, training=False), input_signature=batches.element_spec[:1]
    )
    outputs = [run(values).numpy() for values, _ in batches]
    order = np.concatenate(list(examples._order(batch_size, None)))
    class_ids, lengths = examples.class_ids[order], examples.lengths
    if lengths is None or outputs[0].ndim == 2:
        return Examples(np.concatenate(outputs), class_ids)
    lengths = lengths[order]
    rows = itertools.chain.from_iterable(outputs)
    values = [row[:length].astype("float16") for row, length in zip(rows, lengths, strict=True)]
    return Examples(np.concatenate(values), class_ids, lengths)


def kept(
    folder: pathlib.Path, settings: dict[str, Any], make: Callable[[], dict[str, Examples]]
) -> dict[str, Examples]:
    """Parts from their files, or made now and put there.

    Args:
        folder: where the files are.
        settings: what the parts depend on; files with others are not used.
        make: a function that returns the parts by name.
    """
    described = folder / "settings.json"
    # This file is written last: where it is, the others are whole.
    if described.exists() and json.loads(described.read_text()) == settings:
        return {path.stem: _read(path) for path in sorted(folder.glob("*.npz"))}
    parts = make()
    folder.mkdir(parents=True, exist_ok=True)
    described.unlink(missing_ok=True)
    for name, examples in parts.items():
        arrays: dict[str, Any] = {"values": examples.values, "class_ids": examples.class_ids}
        if examples.lengths is not None:
            arrays["lengths"] = examples.lengths
        with _files.replacing(folder / f"{name}.npz") as path:
            np.savez(path, **arrays)
    _files.write_text(described, json.dumps(settings))
    return parts


def _read(path):
    with np.load(path) as arrays:
        return Examples(**arrays)
