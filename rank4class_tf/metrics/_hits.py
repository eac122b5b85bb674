"""Positives among the first k ranks."""

import tensorflow as tf

from rank4class_tf.ops import Ranks


def hits(ranks: Ranks, k: int) -> tf.Tensor:
    r"""Expected number of positives among the first k, `[batch]`.

    $$\sum_{p \in Y} \min\left(1, \frac{(k - a_p)_+}{m_p}\right)$$

    with $a$ items above and $m$ tied, the item itself counted.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 1.0, 2.0]], [[1, 0]])
        >>> hits(ranks, k=3).numpy()  # item 0, and item 1 in one of two orders
        array([1.5])
    """
    share = tf.math.divide_no_nan(tf.maximum(k - ranks.above, 0), ranks.tied)
    return tf.reduce_sum(tf.minimum(share, 1), axis=-1)
