"""Soft ranks of all items by projection on the permutahedron, in O(d log d)."""

import math

import tensorflow as tf

from rank4class_tf._tf.gather import scatter_add
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._tf.scan import maxima
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.ranking._best_first import best_first
from rank4class_tf.ops.ranking._powers_of_two import over_powers_of_two


def projected_ranks(
    scores: TensorLike, regularization: float, mask: tf.Tensor | None = None
) -> tf.Tensor:
    """The ranks of `layers.SoftRankSorter`, which has the formula.

    An isotonic regression in float64 finds the blocks of the projection. Where XLA compiles lists
    of unknown length, time and memory are those of `[batch, d, d]`.

    The arguments and the result are those of `all_sigmoid_ranks`.
    """
    scores = tf.convert_to_tensor(scores)

    @tf.custom_gradient
    def ranks(scores):
        items = best_first(scores, mask)
        size = scores.shape[1] or tf.shape(scores)[1]
        # Items further apart than half a list never share a block, so this limit changes no block
        # and saves digits of the sums.
        gaps = (items.scores[:, :-1] - items.scores[:, 1:]) / regularization
        gaps = tf.minimum(tf.cast(gaps, tf.float64), tf.cast(size, tf.float64))
        points = tf.pad(tf.cumsum(gaps - 1, axis=1), [[0, 0], [1, 0]])[:, :size]
        fit = isotonic_regression(points)
        places = tf.cast(tf.range(1, size + 1), tf.float64)

        def gradient(upstream):
            values = items.sort(upstream)
            starts = tf.pad(fit[:, 1:] != fit[:, :-1], [[0, 0], [1, 0]])[:, :size]
            blocks = tf.cumsum(tf.cast(starts, tf.int32), axis=1)
            shape = tf.shape(values)
            sums = scatter_add(blocks, values, shape)
            means = tf.math.divide_no_nan(sums, scatter_add(blocks, tf.ones_like(values), shape))
            pulls = tf.gather(means, blocks, batch_dims=1) - values
            return items.restore(pulls / regularization)

        return items.restore(tf.cast(places + points - fit, scores.dtype)), gradient

    return ranks(scores)


def isotonic_regression(values: tf.Tensor) -> tf.Tensor:
    r"""Isotonic regression: the nearest list that does not fall.

    $$\arg\min_{v_1 \le \dots \le v_d} \sum_i (v_i - y_i)^2$$

    Fits of neighbouring parts are joined, and parts double in length each time. Joining pools the
    end of the left part with the start of the right one; a binary search finds where to begin.

    Args:
        values: `[batch, d]`, float64. A step between neighbours should not be much above d.

    Returns:
        `[batch, d]`, float64, the same number in all places of a block.

    Example:
        >>> isotonic_regression(tf.constant([[1.0, 3.0, 1.0, 2.0, 5.0]], tf.float64)).numpy()
        array([[1., 2., 2., 2., 5.]])
    """
    size = values.shape[1]
    if size is not None:
        padded = 2 ** (max(size, 1) - 1).bit_length()
    elif in_xla():  # XLA would need the sizes of the parts.
        return _isotonic_of_all_blocks(values)
    else:
        size = tf.shape(values)[1]
        exponent = tf.math.ceil(tf.math.log(tf.cast(size, tf.float64)) / math.log(2))
        padded = 2 ** tf.cast(tf.maximum(exponent, 0), tf.int32)
    # The added values lie above all others, so no pool takes them in.
    added = tf.zeros([tf.shape(values)[0], padded - size], values.dtype)
    added += tf.reduce_max(values, axis=1, keepdims=True)
    fit, _ = over_powers_of_two(_join, padded, 2 * (tf.concat([values, added], axis=1),))
    return fit[:, :size]


def _isotonic_of_all_blocks(values):
    """`isotonic_regression` from the means of all possible blocks, `[batch, d, d]`.

    For each start up to an item, take the lowest mean of a block that ends at the item or later.
    The item's value is the highest of these.
    """
    batch, size = tf.unstack(tf.shape(values))
    sums = tf.cumsum(values, axis=1)
    before = sums - values
    places = tf.range(size)
    widths = tf.cast(places - places[:, tf.newaxis] + 1, values.dtype)
    infinite = tf.constant(float("inf"), values.dtype)
    means = (sums[:, tf.newaxis] - before[:, :, tf.newaxis]) / widths
    means = tf.where(widths > 0, means, infinite)
    lowest = -maxima(tf.reshape(-means, [batch * size, size]))
    lowest = tf.where(widths > 0, tf.reshape(lowest, [batch, size, size]), -infinite)
    return tf.reduce_max(lowest, axis=1)


def _join(half, fit, sums):
    """Joins the fits of neighbouring parts of the width `half`.

    Args:
        half: a power of two.
        fit: `[batch, d]`, rising in each part.
        sums: `[batch, d]`, the sums from the start of its part up to each item, itself included.
    """
    shape = tf.stack([tf.shape(fit)[0], tf.shape(fit)[1] // (2 * half), 2, half])
    left, right = tf.unstack(tf.reshape(fit, shape), axis=2)
    left_sums, right_sums = tf.unstack(tf.reshape(sums, shape), axis=2)
    left_total = left_sums[:, :, -1]

    def sum_of_first(count, sums):
        sum_ = tf.gather(sums, tf.maximum(count - 1, 0), batch_dims=2)
        return tf.where(count > 0, sum_, tf.zeros_like(sum_))

    def keep_more(step, kept):
        """Keeps `step` more items of the left part if they lie below the value of the pool."""
        more = tf.minimum(kept + step, half)
        highest = tf.gather(left, more - 1, batch_dims=2)
        number = tf.searchsorted(right, highest[:, :, tf.newaxis])[:, :, 0]
        # A pool at `highest` takes the items above it on the left and below it on the right.
        above = left_total - sum_of_first(more, left_sums)
        above -= highest * tf.cast(half - more, highest.dtype)
        below = highest * tf.cast(number, highest.dtype) - sum_of_first(number, right_sums)
        return step // 2, tf.where(above >= below, more, kept)

    # A loop, since XLA would take minutes to compile it unrolled.
    _, kept = tf.while_loop(
        lambda step, _: step > 0, keep_more, (half, tf.zeros_like(left_total, tf.int32))
    )
    start = sum_of_first(kept, left_sums)
    pool = left_total - start
    width = tf.cast(half - kept, fit.dtype)
    # The pool takes in items of the right part as long as they are below its mean.
    widths = width[:, :, tf.newaxis] + tf.cast(tf.range(half), fit.dtype)
    joins = right * widths < pool[:, :, tf.newaxis] + right_sums - right
    taken = tf.reduce_sum(tf.cast(joins, tf.int32), axis=2)
    mean = tf.math.divide_no_nan(
        pool + sum_of_first(taken, right_sums), width + tf.cast(taken, fit.dtype)
    )
    kept, taken, mean, start, total = (
        x[:, :, tf.newaxis] for x in (kept, taken, mean, start, left_total)
    )
    places = tf.range(2 * half)
    pooled = (places >= kept) & (places < half + taken)
    fit = tf.where(pooled, mean, tf.concat([left, right], axis=2))
    pooled_sums = start + mean * tf.cast(places - kept + 1, fit.dtype)
    sums = tf.where(pooled, pooled_sums, tf.concat([left_sums, right_sums + total], axis=2))
    shape = tf.stack([tf.shape(fit)[0], -1])
    return tf.reshape(fit, shape), tf.reshape(sums, shape)
