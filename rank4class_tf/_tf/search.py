"""Sorted lists: places, ties, the highest, running sums."""

import math
from collections.abc import Callable

import tensorflow as tf

from rank4class_tf._tf.gather import gather, indices, inverse, scatter_add
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._types import TensorLike

# Up to this many entries, comparing with all of them costs less under XLA.
_FEW = 16


def searchsorted(rising: tf.Tensor, values: tf.Tensor, side: str = "left") -> tf.Tensor:
    """As `tf.searchsorted`, which under XLA compares each value with all entries at once.

    Args:
        rising: `[batch, n]`, sorted, n >= 1.
        values: `[batch, P]`; a NaN may get any place.
        side: "left" for how many entries are below the value, "right" for those up to it.

    Returns:
        `[batch, P]` int32.
    """
    few = rising.shape[1] is not None and rising.shape[1] <= _FEW
    if few or not in_xla():
        return tf.searchsorted(rising, values, side)
    return count_leading(rising, values, {"left": tf.less, "right": tf.less_equal}[side])


def places_in(rising: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """`tf.searchsorted` of one list `[n]` and values of any shape, also of no values."""
    flat = tf.reshape(values, [1, -1])
    found = tf.raw_ops.LowerBound(sorted_inputs=rising[tf.newaxis], values=flat)
    return tf.reshape(found, tf.shape(values))


def count_leading(rows: tf.Tensor, values: tf.Tensor, holds: Callable) -> tf.Tensor:
    """How many leading entries of its row a condition holds for, by binary search.

    Args:
        rows: `[batch, n]`, n >= 1.
        values: `[batch, P]`.
        holds: of entries and values, both `[batch, P]`; once False in a row, it stays False.

    Returns:
        `[batch, P]` int32.
    """
    n = tf.shape(rows)[1]
    count = tf.zeros_like(values, tf.int32)
    for bit in reversed(range((rows.shape[1] or 2**30).bit_length())):
        further = count + 2**bit
        entry = tf.gather(rows, tf.minimum(further, n) - 1, batch_dims=1)
        count = tf.where((further <= n) & holds(entry, values), further, count)
    return count


# Below this many items per item sought, sorting them all costs less than finding the blocks.
_MIN_ITEMS_PER_PLACE = 32


def top_k(scores: tf.Tensor, k: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
    """The k largest scores in falling order, and where they stand.

    Equal to `tf.math.top_k` but for the order of equal scores. The k largest of all lie in the k
    blocks whose maxima are largest, so that only block maxima and those blocks need sorting:
    XLA's top_k on a CPU sorts every list in full.

    Args:
        scores: `[batch, n]`, n >= k.
        k: positive integer, or a scalar tensor where only running tells, for which all is sorted.

    Returns:
        Two tensors `[batch, k]`, the values and their columns, int32.
    """
    n = scores.shape[1]
    if n is None or not isinstance(k, int) or n < _MIN_ITEMS_PER_PLACE * k:
        values, columns = tf.math.top_k(scores, k)
        return values, columns
    size = math.isqrt(n // k)
    size = next((s for s in range(size, size // 2, -1) if n % s == 0), size)
    blocks = -(-n // size)
    if blocks * size > n:
        scores = tf.pad(scores, [[0, 0], [0, blocks * size - n]], constant_values=-float("inf"))
    blocked = tf.reshape(scores, [-1, blocks, size])
    _, best_blocks = tf.math.top_k(tf.reduce_max(blocked, axis=-1), k)
    candidates = tf.reshape(gather(blocked, best_blocks), [-1, k * size])
    values, positions = tf.math.top_k(candidates, k)
    columns = tf.gather(best_blocks, positions // size, batch_dims=1) * size + positions % size
    # A list of fewer than k items may fill up with padding; it must not point outside.
    return values, tf.minimum(columns, n - 1)


def add_columns(x: tf.Tensor, columns: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """`x` with `values[b, j]` added at `[b, columns[b, j]]`; columns may repeat."""
    return tf.tensor_scatter_nd_add(x, indices(columns), values)


def first_and_last_ranks(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The first and the last rank, from 1 on, that each value has in rising order.

    Args:
        values: `[batch, n]`.

    Returns:
        Two int32 tensors `[batch, n]`; they differ where values are equal.
    """
    order = tf.argsort(values, axis=-1)
    ranked = tf.gather(values, order, batch_dims=1)
    starts = tf.concat([tf.zeros_like(ranked[:, :1], tf.bool), ranked[:, 1:] != ranked[:, :-1]], 1)
    group = tf.cumsum(tf.cast(starts, tf.int32), axis=-1)
    size = scatter_add(group, tf.ones_like(group), tf.shape(group))
    group = tf.gather(group, inverse(order), batch_dims=1)
    last = tf.gather(tf.cumsum(size, axis=-1), group, batch_dims=1)
    return last - tf.gather(size, group, batch_dims=1) + 1, last


def maxima(values: tf.Tensor, most: int | None = None) -> tf.Tensor:
    """The highest of each entry and those to its right, `[batch, n]`; it has no gradient."""

    def join(width, values):
        return [tf.maximum(values, _shifted(values, width, values.dtype.min))]

    return _doubling([tf.stop_gradient(values)], join, values, most)[0]


def decaying_sums(values: tf.Tensor, decay: tf.Tensor, most: int | None = None) -> tf.Tensor:
    """The sums `S_k = values_k + decay_k S_(k+1)`, each exact up to rounding.

    Args:
        values: `[batch, n]`.
        decay: `[batch, n]`, in [0, 1]; it has no gradient.
        most: see above; then the gradient counts only where the upstream one is of these entries.
    """

    @tf.custom_gradient
    def sums(values):
        def gradient(upstream):
            # The same from the left, where the decay of the neighbour counts.
            of_neighbour = _shifted(tf.reverse(decay, [1]), 1)
            return tf.reverse(_sums(tf.reverse(upstream, [1]), of_neighbour, most), [1])

        return _sums(values, decay, most), gradient

    return sums(values)


def _sums(values, decay, most):
    def join(width, values, decay):
        values += decay * _shifted(values, width)
        return [values, decay * _shifted(decay, width)]

    return _doubling([values, decay], join, values, most)[0]


def _doubling(
    state: list[tf.Tensor], join: Callable, rows: tf.Tensor, most: int | None
) -> list[tf.Tensor]:
    """Joins what stands for 1, 2, 4, ... entries with what stands for as many to the right."""
    width = rows.shape[1] or most or 2**30
    for bit in range((width - 1).bit_length()):
        state = join(2**bit, *state)
    return state


def _shifted(rows, width, fill=0):
    """The rows moved to the left."""
    width = tf.minimum(width, tf.shape(rows)[1]) if rows.shape[1] is None else width
    moved = tf.pad(rows[:, width:], [[0, 0], [0, width]], constant_values=fill)
    return tf.ensure_shape(moved, rows.shape)
