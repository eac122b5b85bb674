"""The rows of a sum over blocks of classes: lists, positives in columns, or joined.

Each kind gives the terms of its rows in a block, and, for positives, the way from their
columns and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from rank4class_tf._lists.positives import FEW_POSITIVES, terms
from rank4class_tf._tf.gather import gather_rows
from rank4class_tf._tf.gradients import cond
from rank4class_tf._types import Function, Tensor, Tensors

# Compared with a block of 1,024 classes, so many positives take 128 MB.
_POSITIVES_AT_ONCE = 1 << 15


class ByList:
    """A row for each list, whose values are `[batch, 1]`."""

    def terms(self, function: Function, items: Tensors, values: Tensors) -> Tensor:
        return function(*items, *values)


class ColumnPositives(NamedTuple):
    """Positives as they are given, in columns `[batch, P]` with padding."""

    relevance: Tensor  # `[batch, P]`, 0 where padded.

    def from_columns(self, columns: Tensor) -> Tensor:
        return columns

    def to_columns(self, values: Tensor) -> Tensor:
        return values

    def terms(self, function: Callable, items: Sequence, positives: Sequence) -> Tensor:
        """`function` of items `[batch, n]` and positives, `[batch, P, n]`."""
        return terms(function, items, positives)

    def sums(
        self, sum_columns: Callable, function: Callable, items: Tensors, values: Tensors
    ) -> Tensor:
        """The sums over items `[batch, n]` of all positives, `[batch, P]`."""
        return sum_columns(function, items, values, self.relevance)


class FlatPositives(NamedTuple):
    """Positives of all lists, joined, `[T]`, without the padding of `[batch, P]`."""

    # With 5 of at most 22 positives, the value and gradient of Rankmax take a fifth of
    # the time.
    relevance: Tensor  # `[batch, P]`, 0 where padded.
    lists: Tensor  # `[T]` int32, the list of each positive, a row of the batch.
    padded_index: Tensor  # `[T]` int32, the index of each in `[batch P]`.
    # `[batch, P]` int32, the index in `[T]`; padding has that of column 0.
    flat_index: Tensor

    @classmethod
    def from_relevance(cls, relevance: Tensor) -> FlatPositives:
        """Positives of relevance `[batch, P]`, 0 where padded; lists keep column 0."""
        width = tf.shape(relevance)[1]
        is_kept = (relevance > 0) | (tf.range(width) == 0)
        flat = tf.reshape(is_kept, [-1])
        padded_index = tf.cast(tf.where(flat)[:, 0], tf.int32)

        number = tf.cumsum(tf.cast(flat, tf.int32)) - 1
        number = tf.reshape(number, tf.shape(relevance))
        flat_index = tf.where(is_kept, number, number[:, :1])
        lists = padded_index // width
        return cls(relevance, lists, padded_index, flat_index)

    @property
    def are_few(self) -> Tensor:
        """Whether lists have few on average, and not too many in all, a scalar."""
        num_lists = tf.shape(self.flat_index)[0]
        most = tf.minimum(FEW_POSITIVES * num_lists, _POSITIVES_AT_ONCE)
        return tf.size(self.lists) <= most

    def from_columns(self, columns: Tensor) -> Tensor:
        """`[batch, P]` -> `[T]`."""
        flat = tf.reshape(columns, [-1])
        return gather_rows(flat, self.padded_index, tf.size(self.flat_index))

    def to_columns(self, values: Tensor) -> Tensor:
        """`[T]` -> `[batch, P]`."""
        return gather_rows(values, self.flat_index, tf.size(self.lists))

    def terms(self, function: Callable, items: Sequence, positives: Sequence) -> Tensor:
        """`function` of items `[batch, n]` and positives `[T]`, `[T, n]`."""
        num_lists = tf.shape(self.flat_index)[0]
        items = [gather_rows(x, self.lists, num_lists) for x in items]
        positives = [x[:, tf.newaxis] for x in positives]
        return function(*items, *positives)

    def sums(
        self, sum_columns: Callable, function: Callable, items: Tensors, values: Tensors
    ) -> Tensor:
        """The sums over items `[batch, n]` of all positives, `[T]`."""

        def sums_of_few(items: Tensors, values: Tensors) -> Tensor:
            return tf.reduce_sum(self.terms(function, items, values), axis=-1)

        def sums_of_many(items: Tensors, values: Tensors) -> Tensor:
            columns = [self.to_columns(x) for x in values]
            sums = sum_columns(function, items, columns, self.relevance)
            return self.from_columns(sums)

        # Few on average, or many: known only at run time.
        return cond(self.are_few, sums_of_few, sums_of_many, [*items], values)


class BySum(NamedTuple):
    """A row for each positive, where these are many: its one term is their sum."""

    positives: ColumnPositives | FlatPositives
    sum_columns: Function  # Of `(function, items, values, relevance)`, `[batch, P]`.

    def terms(self, function: Function, items: Tensors, values: Tensors) -> Tensor:
        sums = self.positives.sums(self.sum_columns, function, items, values)
        return sums[..., tf.newaxis]


# Each has a method `terms`: the terms `[rows, m]` of items `[batch, m]` and values.
RowKind: TypeAlias = ByList | BySum | ColumnPositives | FlatPositives
