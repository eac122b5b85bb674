"""Positives among the first k ranks."""

import tensorflow as tf

from rank4class_tf.ops import Ranks


def hits(ranks: Ranks, k: int | None) -> tf.Tensor:
    r"""Expected number of positives among the first k, `[batch]`; None means all ranks.

    $$\sum_{p \in Y} \min\left(1, \frac{(k - a_p)_+}{m_p}\right)$$

    with $a$ items above and $m$ tied, the item itself counted.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 1.0, 2.0]], [[1, 0]])
        >>> hits(ranks, k=3).numpy()  # item 0, and item 1 in one of two orders
        array([1.5])
    """
    return tf.reduce_sum(hit_shares(ranks, k), axis=-1)


def hit_shares(ranks: Ranks, k: int | None) -> tf.Tensor:
    """The probability of each positive to be among the first k, `[batch, P]`; see `hits`."""
    if k is None:
        return tf.minimum(ranks.tied, 1)
    share = tf.math.divide_no_nan(tf.maximum(k - ranks.above, 0), ranks.tied)
    return tf.minimum(share, 1)
