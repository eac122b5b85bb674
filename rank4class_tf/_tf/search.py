"""Places in sorted lists."""

from collections.abc import Callable

import tensorflow as tf

from rank4class_tf._tf.raising import in_xla

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
