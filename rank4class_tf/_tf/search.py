"""Sorted lists: positions, ties, the highest of a list or all classes, running sums.

Only `decaying_sums` and `add_columns` have gradients of their own.
"""

import math
from typing import NamedTuple, Protocol

import tensorflow as tf

from rank4class_tf._tf import sizes
from rank4class_tf._tf.gather import (
    gather,
    group_numbers,
    indices,
    scatter_add,
)
from rank4class_tf._tf.loops import fold
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._tf.shapes import larger, num_rows, smaller, width_of
from rank4class_tf._types import (
    Array,
    Function,
    Size,
    Tensor,
    TensorPair,
    WithGradient,
)

# Up to this many entries, comparing with all of them costs less under XLA: .4 of the
# time for 8 entries, 1.6 for 64 (64 x 1,000 values).
_MOST_COMPARED = 16


def searchsorted(rising: Tensor, values: Tensor, side: str = "left") -> Tensor:
    """As `tf.searchsorted`, which in XLA compares values with all entries at once."""
    # Lists `[batch, n]` have at least one entry. A NaN among the values `[batch, P]`
    # may get any position. The side "left" counts the entries below a value, "right"
    # those up to it.
    most = rising.shape[1] or 2**30
    if most <= _MOST_COMPARED or not in_xla():
        return tf.searchsorted(rising, values, side)

    is_before = {"left": tf.less, "right": tf.less_equal}[side]
    n = tf.shape(rising)[1]
    count = tf.zeros_like(values, tf.int32)
    # Bit by bit of the count, from the highest: set it if the entry there still comes
    # before.
    for bit in reversed(range(most.bit_length())):
        candidate = count + 2**bit
        entry = tf.gather(rising, tf.minimum(candidate, n) - 1, batch_dims=1)
        is_set = (candidate <= n) & is_before(entry, values)
        count = tf.where(is_set, candidate, count)
    return count


def places_in(rising: Tensor, values: Tensor) -> Tensor:
    """`tf.searchsorted` of one list `[n]` and values of any shape, even of none."""
    flat = tf.reshape(values, [1, -1])
    positions = tf.raw_ops.LowerBound(sorted_inputs=rising[tf.newaxis], values=flat)
    return tf.reshape(positions, tf.shape(values))


# Below this many items per item to find, sorting all costs less than finding the
# blocks. By blocks, 10 of 1,000 items take .9 of the time, 100 of 1,000 1.3 of it,
# under XLA 4.3 (64 lists).
_MIN_ITEMS_PER_PLACE = 32


def top_k(scores: Tensor, k: Array) -> TensorPair:
    """The k largest scores in falling order, and their columns."""
    # Equal to `tf.math.top_k`. The k largest lie in the k blocks whose maxima are
    # largest. So only block maxima and those blocks need sorting, while XLA's top_k on
    # a CPU sorts every list in full. Where k is a tensor, all is sorted.
    n = scores.shape[1]
    if n is None or not isinstance(k, int) or n < _MIN_ITEMS_PER_PLACE * k:
        values, columns = tf.math.top_k(scores, k)
        return values, columns

    # A divisor of n avoids padding.
    size = math.isqrt(n // k)
    size = next((s for s in range(size, size // 2, -1) if n % s == 0), size)
    blocks = -(-n // size)
    if blocks * size > n:
        padding = [[0, 0], [0, blocks * size - n]]
        scores = tf.pad(scores, padding, constant_values=-float("inf"))

    blocked = tf.reshape(scores, [-1, blocks, size])
    _, best_blocks = tf.math.top_k(tf.reduce_max(blocked, axis=-1), k)
    # In the order of their columns, so that padding comes after all items at -inf, too:
    # each block has an item, so that k are before it.
    best_blocks = tf.sort(best_blocks, axis=-1)
    candidates = tf.reshape(gather(blocked, best_blocks), [-1, k * size])
    values, positions = tf.math.top_k(candidates, k)
    block = tf.gather(best_blocks, positions // size, batch_dims=1)
    return values, block * size + positions % size


def search_block(encodings: Tensor, num_classes: int) -> int | Tensor:
    """How many classes a block of a search has."""
    device = sizes.device_type()
    rows = num_rows(encodings)
    if device == "CPU" and not isinstance(rows, int):
        rows = sizes.FEW_ROWS
    return sizes.block_size(device, rows, num_classes, sizes.SEARCHED)


# Later blocks have few scores above the k-th best so far. The maxima of groups of so
# many scores find them, which takes a third of the time at a million classes, k = 100
# and a batch of 256.
_GROUP = 64


def top_k_by_blocks(
    score: Function, num_classes: int, k: Size, block_size: Size
) -> TensorPair:
    """Finds the scores and ids of the k highest-scoring classes, block by block."""
    # Both are `[batch, k]`, best first; of equal scores the lower id first. Equal
    # classes come in any order if their scores are products, which are rounded. `score`
    # maps class ids `[m]` to scores `[batch, m]`; k is in [1, K]; a block has a
    # multiple of 64 classes, at least k. Sizes stay Python numbers where possible,
    # since XLA needs static shapes.
    size = -(-larger(block_size, k) // _GROUP) * _GROUP
    return fold_scores(score, num_classes, size, _Highest(k, size))


class _Highest(NamedTuple):
    """Keeps the k highest scores and their ids, `[batch, k]`; see `Kept`."""

    k: Size
    block_size: Size

    def start(self, ids: Tensor, scores: Tensor) -> TensorPair:
        values, columns = tf.math.top_k(scores, self.k)
        return values, tf.gather(ids, columns)

    def merge(self, kept: TensorPair, ids: Tensor, scores: Tensor) -> TensorPair:
        def from_all() -> TensorPair:
            return self._joined(kept, ids, *tf.math.top_k(scores, self.k))

        if in_xla():  # XLA needs static shapes.
            return from_all()

        kth_score = kept[0][:, -1:]
        groups = tf.reshape(scores, [-1, self.block_size // _GROUP, _GROUP])
        has_new = tf.reduce_max(groups, axis=2) > kth_score
        return tf.cond(
            tf.math.count_nonzero(has_new) <= tf.size(has_new, tf.int64) // 2,
            lambda: self._joined(kept, ids, *_above(groups, kth_score, has_new)),
            from_all,
        )

    def _joined(
        self, kept: TensorPair, ids: Tensor, scores: Tensor, columns: Tensor
    ) -> TensorPair:
        """The highest of those kept and of scores in columns of a block."""
        kept_scores, kept_ids = kept
        values = tf.concat([kept_scores, scores], axis=1)
        ids_of_values = tf.concat([kept_ids, tf.gather(ids, columns)], axis=1)
        # Sorting all takes half the time of finding the k highest of slightly more than
        # k.
        values, order = tf.math.top_k(values, tf.shape(values)[1])
        values = tf.ensure_shape(values[:, : self.k], kept_scores.shape)
        order = tf.ensure_shape(order[:, : self.k], kept_scores.shape)
        return values, tf.gather(ids_of_values, order, batch_dims=1)


def _above(groups: Tensor, kth_score: Tensor, has_new: Tensor) -> TensorPair:
    """Scores above the k-th so far, `[batch, 1]`, and their columns; both padded."""
    # Groups are `[batch, groups, size of a group]`; `has_new` is False for one without
    # new scores.
    row_and_group = tf.where(has_new)
    scores = tf.gather_nd(groups, row_and_group)
    lowest = tf.gather(kth_score, row_and_group[:, 0])
    group_and_column = tf.where(scores > lowest)
    places = tf.gather(row_and_group, group_and_column[:, 0])
    row, group = tf.unstack(places, axis=1)

    def by_row(values: Tensor, padding: Array) -> Tensor:
        nrows = tf.shape(groups, tf.int64)[0]
        ragged = tf.RaggedTensor.from_value_rowids(values, row, nrows, validate=False)
        return ragged.to_tensor(padding)

    new_scores = tf.gather_nd(scores, group_and_column)
    columns = group * groups.shape[2] + group_and_column[:, 1]
    padding = tf.constant(-float("inf"), scores.dtype)
    return by_row(new_scores, padding), by_row(tf.cast(columns, tf.int32), 0)


class Kept(Protocol):
    """What a pass over the scores of all classes keeps: two tensors."""

    def start(self, ids: Tensor, scores: Tensor) -> TensorPair:
        """What is kept of the first block, of ids `[m]` and scores `[batch, m]`."""

    def merge(self, kept: TensorPair, ids: Tensor, scores: Tensor) -> TensorPair:
        """What is kept after one more block."""


def fold_scores(
    score: Function, num_classes: int, block_size: Size, kept: Kept
) -> TensorPair:
    """What is kept of the scores of all classes, block by block."""
    # All blocks are equally wide, so that all products are rounded alike.
    size = smaller(block_size, num_classes)
    first_ids = tf.range(size)
    first, second = kept.start(first_ids, score(first_ids))
    if isinstance(size, int) and size == num_classes:
        return first, second

    def step(block: Tensor, first: Tensor, second: Tensor) -> TensorPair:
        # The last block is as wide as the others and overlaps the one before; we mask
        # that part.
        end_before = block * size
        first_id = tf.minimum(end_before, num_classes - size)
        ids = first_id + tf.range(size)
        scores = score(ids)

        def masked() -> Tensor:
            lowest = tf.constant(-float("inf"), scores.dtype)
            return tf.where((ids < end_before)[tf.newaxis], lowest, scores)

        unmasked = tf.cond(first_id < end_before, masked, lambda: scores)
        return kept.merge((first, second), ids, unmasked)

    num_blocks = -(-num_classes // size)
    first, second = fold(step, num_blocks, [first, second], first=1)
    return first, second


def add_columns(x: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """`x` with `values[b, j]` added at `[b, columns[b, j]]`; columns may repeat."""
    return tf.tensor_scatter_nd_add(x, indices(columns), values)


def first_and_last_ranks(values: Tensor) -> TensorPair:
    """Ranks from 1 in rising order: first and last of ties, int32 `[batch, n]` each."""
    group = group_numbers(values)
    sizes_of_groups = scatter_add(group, tf.ones_like(group), tf.shape(group))
    ends = tf.cumsum(sizes_of_groups, axis=-1)
    last = tf.gather(ends, group, batch_dims=1)
    return last - tf.gather(sizes_of_groups, group, batch_dims=1) + 1, last


def maxima(values: Tensor, most: int | None = None) -> Tensor:
    """The highest of each entry and those to its right, `[batch, n]`; no gradient."""
    values = tf.stop_gradient(values)
    for width in _widths(values, most):
        values = tf.maximum(values, moved(values, width, values.dtype.min))
    return values


def decaying_sums(values: Tensor, decay: Tensor, most: int | None = None) -> Tensor:
    """Sums `S_k = values_k + decay_k S_(k+1)`, `[batch, n]`, exact up to rounding."""
    # The decay is in [0, 1], without a gradient. `most` says how many entries to the
    # right to join where n is not known; the gradient is right only if the upstream one
    # is of these entries.

    def sums_from_right(values: Tensor, decay: Tensor) -> Tensor:
        for width in _widths(values, most):
            values += decay * moved(values, width)
            decay *= moved(decay, width)
        return values

    @tf.custom_gradient
    def sums(values: Tensor) -> WithGradient:
        def gradient(upstream: Tensor) -> Tensor:
            # The same from the left, where the decay of the neighbour counts.
            neighbour_decay = moved(tf.reverse(decay, [1]), 1)
            totals = sums_from_right(tf.reverse(upstream, [1]), neighbour_decay)
            return tf.reverse(totals, [1])

        return sums_from_right(values, decay), gradient

    return sums(values)


def _widths(rows: Tensor, most: int | None) -> list[int]:
    """1, 2, 4, ...: a result of so many entries is joined with as many to its right."""
    n = rows.shape[1] or most or 2**30
    return [2**bit for bit in range((n - 1).bit_length())]


def moved(
    rows: Tensor, by: int | Tensor, fill: float = 0, right: bool = False
) -> Tensor:
    """The rows `[batch, n]` moved by at most n columns to the left, or to the right."""
    n = width_of(rows)
    if not isinstance(by, int) and in_xla():
        # XLA cannot take slices whose size a loop computes.
        step = by if right else -by
        columns = tf.range(n) - step
        is_inside = (columns >= 0) & (columns < n)
        rolled = tf.roll(rows, step, axis=1)
        return tf.where(is_inside, rolled, tf.cast(fill, rows.dtype))

    if not isinstance(n, int):
        by = tf.minimum(by, n)
    if right:
        kept = rows[:, : n - by]
        padding = [by, 0]
    else:
        kept = rows[:, by:]
        padding = [0, by]
    padded = tf.pad(kept, [[0, 0], padding], constant_values=fill)
    padded.set_shape(rows.shape)
    return padded
