"""Sorted lists: positions, ties, the highest of a list or all classes, running sums.

Nothing here has a gradient but `decaying_sums` and `add_columns`.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from rank4class_tf._tf import sizes
from rank4class_tf._tf.gather import (
    gather,
    group_numbers,
    indices,
    num_rows,
    scatter_add,
)
from rank4class_tf._tf.loops import fold
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._types import Array, Tensor, TensorPair, Tensors, WithGradient

# Up to this many entries, comparing with all of them costs less under XLA: .4 of the
# time for 8 entries, 1.6 for 64 (64 x 1,000 values).
_MOST_COMPARED = 16


def searchsorted(rising: Tensor, values: Tensor, side: str = "left") -> Tensor:
    """As `tf.searchsorted`, which in XLA compares values with all entries at once."""
    # Lists `[batch, n]` have at least one entry. A NaN among the values `[batch, P]`
    # may get any position. The side "left" counts the entries below a value, "right"
    # those up to it.
    few = rising.shape[1] is not None and rising.shape[1] <= _MOST_COMPARED
    if few or not in_xla():
        return tf.searchsorted(rising, values, side)
    is_before = {"left": tf.less, "right": tf.less_equal}[side]
    n, count = tf.shape(rising)[1], tf.zeros_like(values, tf.int32)
    # Bit by bit of the count, from the highest: set it if the entry there still comes
    # before.
    for bit in reversed(range((rising.shape[1] or 2**30).bit_length())):
        candidate = count + 2**bit
        entry = tf.gather(rising, tf.minimum(candidate, n) - 1, batch_dims=1)
        count = tf.where((candidate <= n) & is_before(entry, values), candidate, count)
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
    # Equal to `tf.math.top_k` but for the order of equal scores. The k largest of all
    # lie in the k blocks whose maxima are largest, so that only block maxima and those
    # blocks need sorting: XLA's top_k on a CPU sorts every list in full. Where k is a
    # tensor, all is sorted.
    n = scores.shape[1]
    if n is None or not isinstance(k, int) or n < _MIN_ITEMS_PER_PLACE * k:
        values, columns = tf.math.top_k(scores, k)
        return values, columns
    size = math.isqrt(n // k)
    # To avoid padding.
    size = next((s for s in range(size, size // 2, -1) if n % s == 0), size)
    blocks = -(-n // size)
    if blocks * size > n:
        scores = tf.pad(
            scores, [[0, 0], [0, blocks * size - n]], constant_values=-float("inf")
        )
    blocked = tf.reshape(scores, [-1, blocks, size])
    _, best_blocks = tf.math.top_k(tf.reduce_max(blocked, axis=-1), k)
    candidates = tf.reshape(gather(blocked, best_blocks), [-1, k * size])
    values, positions = tf.math.top_k(candidates, k)
    columns = (
        tf.gather(best_blocks, positions // size, batch_dims=1) * size
        + positions % size
    )
    # Padding may be among the k largest; its columns must not point outside.
    return values, tf.minimum(columns, n - 1)


def search_block(encodings: Tensor, num_classes: int) -> int | Tensor:
    """How many classes a block of a search has."""
    device, rows = sizes.device_type(), num_rows(encodings)
    if device == "CPU" and not isinstance(rows, int):
        rows = 1  # Static sizes save a graph on a CPU the loop over a single block.
    return sizes.block_size(device, rows, num_classes, sizes.SEARCHED)


# Later blocks have few scores above the k-th best so far. The maxima of groups of so
# many scores find them, which takes a third of the time at a million classes, k = 100
# and a batch of 256.
_GROUP = 64


def top_k_by_blocks(
    score: Callable,
    num_classes: int,
    k: int | Tensor,
    block_size: int | Tensor,
) -> TensorPair:
    """Finds the scores and ids of the k highest-scoring classes, block by block."""
    # Both are `[batch, k]`, best first; of equal scores the lower id first. Equal
    # classes come in any order if their scores are products, which are rounded. `score`
    # maps class ids `[m]` to scores `[batch, m]`; k is in [1, K]; a block has a
    # multiple of 64 classes, at least k. Sizes stay Python numbers where possible,
    # since XLA needs static shapes.
    maximum = max if isinstance(k, int) and isinstance(block_size, int) else tf.maximum
    size = -(-maximum(block_size, k) // _GROUP) * _GROUP

    def join(
        best: Tensors, ids: Tensor, new_scores: Tensor, columns: Tensor
    ) -> TensorPair:
        values = tf.concat([best[0], new_scores], axis=1)
        ids_of_values = tf.concat([best[1], tf.gather(ids, columns)], axis=1)
        # Sorting all takes half the time of finding the k highest of slightly more than
        # k.
        values, order = tf.math.top_k(values, tf.shape(values)[1])
        values, order = (
            tf.ensure_shape(x[:, :k], best[0].shape) for x in (values, order)
        )
        return values, tf.gather(ids_of_values, order, batch_dims=1)

    def merge(best: Tensors, ids: Tensor, scores: Tensor) -> TensorPair:
        def from_all() -> TensorPair:
            return join(best, ids, *tf.math.top_k(scores, k))

        if in_xla():  # XLA needs static shapes.
            return from_all()
        groups = tf.reshape(scores, [-1, size // _GROUP, _GROUP])
        kth_best = best[0][:, -1:]
        has_new = tf.reduce_max(groups, axis=2) > kth_best
        return tf.cond(
            tf.math.count_nonzero(has_new) <= tf.size(has_new, tf.int64) // 2,
            lambda: join(best, ids, *_above(groups, kth_best, has_new)),
            from_all,
        )

    def start(ids: Tensor, scores: Tensor) -> TensorPair:
        values, index = tf.math.top_k(scores, k)
        return values, tf.gather(ids, index)

    values, ids = fold_scores(score, num_classes, size, start, merge)
    return values, ids


def _above(groups: Tensor, kth_best: Tensor, has_new: Tensor) -> TensorPair:
    """Scores above the k-th best so far, `[batch, 1]`, and columns, `[batch, most]`."""
    # Groups are `[batch, groups, size of a group]`; `has_new` is False for one without
    # new scores.
    new_groups = tf.where(has_new)  # The row and group of each.
    scores = tf.gather_nd(groups, new_groups)
    # Group and column.
    new_scores = tf.where(scores > tf.gather(kth_best, new_groups[:, 0]))
    row, group = tf.unstack(tf.gather(new_groups, new_scores[:, 0]), axis=1)

    def by_row(values: Tensor, padding: Array) -> Tensor:
        nrows = tf.shape(groups, tf.int64)[0]
        ragged = tf.RaggedTensor.from_value_rowids(values, row, nrows, validate=False)
        return ragged.to_tensor(padding)

    columns = tf.cast(group * groups.shape[2] + new_scores[:, 1], tf.int32)
    padding = tf.constant(-float("inf"), scores.dtype)
    return by_row(tf.gather_nd(scores, new_scores), padding), by_row(columns, 0)


def fold_scores(
    score: Callable,
    num_classes: int,
    block_size: Tensor,
    start: Callable,
    merge: Callable,
) -> list[Tensor]:
    """Folds `merge(state, ids, scores)` over all blocks, after `start(ids, scores)`."""
    # All blocks are equally wide, so that all products are rounded alike.
    minimum = min if isinstance(block_size, int) else tf.minimum
    size = minimum(block_size, num_classes)
    state = [
        tf.convert_to_tensor(x) for x in start(tf.range(size), score(tf.range(size)))
    ]
    if isinstance(size, int) and size == num_classes:
        return state

    def step(block: Tensor, *state: Tensor) -> Tensors:
        # The last block is as wide as the others and overlaps the one before; we mask
        # that part.
        first = tf.minimum(block * size, num_classes - size)
        ids = first + tf.range(size)
        scores = score(ids)
        lowest = tf.constant(-float("inf"), scores.dtype)
        scores = tf.cond(
            first < block * size,
            lambda: tf.where((ids < block * size)[tf.newaxis], lowest, scores),
            lambda: scores,
        )
        return merge(state, ids, scores)

    return fold(step, -(-num_classes // size), state, first=1)


def add_columns(x: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """`x` with `values[b, j]` added at `[b, columns[b, j]]`; columns may repeat."""
    return tf.tensor_scatter_nd_add(x, indices(columns), values)


def first_and_last_ranks(values: Tensor) -> TensorPair:
    """Ranks from 1 in rising order: first and last of ties, int32 `[batch, n]` each."""
    group = group_numbers(values)
    size = scatter_add(group, tf.ones_like(group), tf.shape(group))
    last = tf.gather(tf.cumsum(size, axis=-1), group, batch_dims=1)
    return last - tf.gather(size, group, batch_dims=1) + 1, last


def maxima(values: Tensor, most: int | None = None) -> Tensor:
    """The highest of each entry and those to its right, `[batch, n]`; no gradient."""
    values = tf.stop_gradient(values)
    for width in _widths(values, most):
        values = tf.maximum(values, shifted(values, width, values.dtype.min))
    return values


def decaying_sums(values: Tensor, decay: Tensor, most: int | None = None) -> Tensor:
    """Sums `S_k = values_k + decay_k S_(k+1)`, `[batch, n]`, exact up to rounding."""
    # The decay is in [0, 1], without a gradient. `most` says how many entries to the
    # right to join where n is not known; the gradient is right only if the upstream one
    # is of these entries.

    def sums_from_right(values: Tensor, decay: Tensor) -> Tensor:
        for width in _widths(values, most):
            values += decay * shifted(values, width)
            decay *= shifted(decay, width)
        return values

    @tf.custom_gradient
    def sums(values: Tensor) -> WithGradient:
        def gradient(upstream: Tensor) -> Tensor:
            # The same from the left, where the decay of the neighbour counts.
            neighbour_decay = shifted(tf.reverse(decay, [1]), 1)
            return tf.reverse(
                sums_from_right(tf.reverse(upstream, [1]), neighbour_decay), [1]
            )

        return sums_from_right(values, decay), gradient

    return sums(values)


def _widths(rows: Tensor, most: int | None) -> list[int]:
    """1, 2, 4, ...: a result of so many entries is joined with as many to its right."""
    return [
        2**bit for bit in range(((rows.shape[1] or most or 2**30) - 1).bit_length())
    ]


def shifted(
    rows: Tensor, by: int | Tensor, fill: float = 0, right: bool = False
) -> Tensor:
    """The rows `[batch, n]` moved by at most n columns to the left, or to the right."""
    n = rows.shape[1] or tf.shape(rows)[1]
    if isinstance(by, int) or not in_xla():
        if not isinstance(n, int):
            by = tf.minimum(by, n)
        kept, pad = (rows[:, : n - by], [by, 0]) if right else (rows[:, by:], [0, by])
        return tf.ensure_shape(
            tf.pad(kept, [[0, 0], pad], constant_values=fill), rows.shape
        )
    # XLA cannot take slices whose size a loop computes.
    by = by if right else -by
    columns = tf.range(n) - by
    is_inside = (columns >= 0) & (columns < n)
    return tf.where(is_inside, tf.roll(rows, by, axis=1), tf.cast(fill, rows.dtype))
