"""The data of a comparison: what they hold, and how each seed splits them."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._batches import Dataset, as_tensors, batches
from rank4class_tf._counts import PADDED_IDS, RANKINGS, RELEVANCE, Form, form_of


class Content(NamedTuple):
    """What a dataset's labels look like, and a checksum that tells it from others."""

    form: Form
    highest: int
    checksum: float


class Split(NamedTuple):
    """What one seed trains on and validates with."""

    train: Dataset
    validation: Dataset


@dataclasses.dataclass(frozen=True)
class Data:
    """The three datasets of a comparison; `validation` may be a share of `train`."""

    train: Dataset
    validation: Dataset | float
    test: Dataset

    def contents(self, rank: int) -> dict[str, Content]:
        """The content of each dataset, by its name, for scores of this rank."""
        contents = {name: read(name, x, rank) for name, x in vars(self).items()}

        # The values of the same list are compared, so that a shuffled test would mix
        # them up.
        if not isinstance(self.test, tuple):
            is_same = read("test", self.test, rank) == contents["test"]
            rule = "`test` must give its examples in the same order each time."
            _checks.require(is_same, rule, "another order of labels")
        return contents

    def split(self, seed: int) -> Split:
        """The data of a seed, which draws a share to validate with from `train`."""
        train = self.train
        share = self.validation
        if not isinstance(share, float):
            return Split(train, share)
        if not isinstance(train, tuple) or not 0 < share < 1:
            rule = (
                "`validation` must be a share in (0, 1) of arrays, or data of its own."
            )
            raise ValueError(f"{rule} Received: {share} of {type(train).__name__}.")

        order = np.random.default_rng(seed).permutation(train[1].shape[0])
        size = round(share * len(order))
        parts = f"at least one of {len(order)} examples to both parts"
        rule = f"`validation` must leave {parts}."
        _checks.require(0 < size < len(order), rule, share)

        return Split(
            train=select(train, order[size:]), validation=select(train, order[:size])
        )

    def notes(self) -> Iterator[str]:
        """What in dense arrays makes the table say too much."""
        test = _hashes(self.test, 0)
        known = {*_hashes(self.train, 0), *_hashes(self.validation, 0)}
        numbers = {
            "repeated": len(test) - len({*test}),
            "in `train` or `validation`": sum(row in known for row in test),
        }
        for what, number in numbers.items():
            if number > len(test) / 100:  # A few short texts may be alike.
                yield f"{number} rows of `test` are {what}."
        if len({*_hashes(self.validation, 1)}) == 1:
            yield "`validation` has one class, by which nothing can be chosen."


def checked(name: str, examples: Dataset) -> Dataset:
    """Arrays as tensors, or a dataset that can be read again."""
    rule = (
        f"`{name}` is read many times: it must be arrays or a `tf.data.Dataset`; only "
        "`validation` may be a share of `train`, such as 0.2."
    )
    is_once = isinstance(examples, Iterator | Mapping)
    is_data = isinstance(examples, Iterable) and not is_once
    _checks.require(is_data, rule, type(examples).__name__)
    return as_tensors(examples) if isinstance(examples, tuple) else examples


def read(name: str, examples: Dataset | float, rank: int) -> Content:
    """The content of the argument `name`; its checksum is of arrays or of targets."""
    form = Form()
    highest = 0
    checksum = 0
    if isinstance(examples, float):
        return Content(form, highest, examples)

    for batch in batches(examples, 1024, name):
        labels = np.asarray(getattr(batch[1], "flat_values", batch[1]))
        numbering = "as of `np.unique(names, return_inverse=True)`"
        rule = f"`{name}` must have labels that are numbers, {numbering}."
        _checks.require(labels.dtype.kind in "iufb", rule, labels.dtype)
        if labels.ndim == rank:  # As dense relevance, which is as wide as the scores.
            form = max(form, form_of(labels))
        highest = max(highest, int(labels.max(initial=0)))

        for x in map(np.asarray, tf.nest.flatten(batch[0], expand_composites=True)):
            is_finite = x.dtype.kind != "f" or np.isfinite(x).all()
            rule = f"`{name}` must have finite features."
            _checks.require(is_finite, rule, "NaN or infinity")

        # Features of a dataset may be large; its targets tell one from another.
        parts = batch if isinstance(examples, tuple) else batch[1:]
        structure = tf.nest.map_structure(lambda x: getattr(x, "dtype", type(x)), parts)
        checksum = zlib.crc32(str(structure).encode(), checksum)
        for x in tf.nest.flatten(parts, expand_composites=True):
            checksum = zlib.crc32(tf.io.serialize_tensor(x).numpy(), checksum)
    return Content(form, highest, checksum)


def num_outputs(contents: Iterable[Content]) -> int:
    """The number of outputs for which losses read all datasets' labels as meant."""
    contents = [*contents]
    form = max(content.form for content in contents)
    if form.kind in (RANKINGS, RELEVANCE):
        return form.width
    number = max(content.highest for content in contents) + 1
    is_clear = form != Form(PADDED_IDS, number)
    rule = (
        "Padded class ids [batch, P] must not have a column for each class, or losses "
        "read them as relevance: add a column of -1, or give relevance as floats."
    )
    _checks.require(is_clear, rule, f"{number} columns and classes")
    return number


def _hashes(examples: Any, part: int) -> list[int]:
    """A hash of each row of the features, 0, or labels, 1, if they are dense arrays."""
    arrays = tf.nest.flatten(examples[part]) if isinstance(examples, tuple) else []
    if not all(isinstance(x, np.ndarray | tf.Tensor) for x in arrays):
        return []
    rows = zip(*map(np.asarray, arrays), strict=False)
    return [hash(tuple(np.array(x).tobytes() for x in row)) for row in rows]


def select(examples: Any, indices: np.ndarray) -> Any:
    """The examples with these indices."""

    def rows(x: tf.Tensor | tf.SparseTensor) -> tf.Tensor | tf.SparseTensor:
        if not isinstance(x, tf.SparseTensor):
            return tf.gather(x, indices)
        position = np.full(x.shape[0], -1)
        position[indices] = np.arange(len(indices))
        moved = position[x.indices.numpy()[:, 0]]
        entries = np.column_stack([moved, x.indices.numpy()[:, 1:]])[moved >= 0]
        shape = [len(indices), *x.shape[1:]]
        return tf.sparse.reorder(tf.SparseTensor(entries, x.values[moved >= 0], shape))

    return tf.nest.map_structure(rows, examples)
