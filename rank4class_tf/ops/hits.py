"""Precision, recall and average precision at a cutoff, from ranks; ties in expectation."""

import tensorflow as tf

from rank4class_tf.ops.ranks import count_greater_and_equal, mean_over_ties, reciprocals


def hits_at_k(ranks, k):
    r"""Expected number of positives among the first k.

    $$\sum_{p \in Y} \min\left(1, \frac{(k - a_p)_+}{m_p}\right)$$

    with $a$ items above and $m$ tied, the item itself counted.

    Args:
        ranks: `Ranks`.
        k: positive integer.

    Returns:
        `[batch]` float64, in `[0, min(k, |Y|)]`.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 1.0, 2.0]], [[1, 0]])
        >>> hits_at_k(ranks, k=3).numpy()  # item 0, and item 1 in one of two orders
        array([1.5])
    """
    share = tf.math.divide_no_nan(tf.maximum(k - ranks.above, 0), ranks.tied)
    return tf.reduce_sum(tf.minimum(share, 1), axis=-1)


def precision_at_k(ranks, k):
    r"""Share of positives among the first k ranks.

    $$\frac{|Y \cap \mathrm{Top}_k|}{k}$$

    Args:
        ranks: `Ranks`.
        k: positive integer. The divisor is k even where a list has fewer items.

    Returns:
        `[batch]` float64, in [0, 1].

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[0, 2]])
        >>> precision_at_k(ranks, k=4).numpy()
        array([0.5])
    """
    return hits_at_k(ranks, k) / k


def recall_at_k(ranks, k):
    r"""Share of the positives that are among the first k ranks.

    $$\frac{|Y \cap \mathrm{Top}_k|}{|Y|}$$

    Args:
        ranks: `Ranks`.
        k: positive integer.

    Returns:
        `[batch]` float64, in [0, 1]; 0 for a list without positives.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[0, 1]])
        >>> recall_at_k(ranks, k=2).numpy()
        array([0.5])
    """
    return tf.math.divide_no_nan(hits_at_k(ranks, k), ranks.num_positives)


def average_precision_at_k(ranks, k=None):
    r"""Average precision over the first k ranks.

    $$\frac{1}{\min(k, |Y|)} \sum_{r \le k} \mathrm{Precision@}r \cdot \mathrm{rel}(r)$$

    In expectation over the order of tied items, a positive with $a$ items above, $Q$ of them
    positive, and $m$ items tied, $q$ of them positive, itself counted in both, adds

    $$\frac{1}{m} \sum_{r=a+1}^{\min(a+m, k)}
    \frac{Q + 1 + (r - a - 1) \frac{q - 1}{m - 1}}{r}$$

    since each of its ranks has probability $1/m$, and each item that is tied with it and comes
    before it is one of the $q - 1$ other positives with probability $(q - 1)/(m - 1)$.

    Args:
        ranks: `Ranks`.
        k: positive integer, or None for all ranks.

    Returns:
        `[batch]` float64, in [0, 1]; 0 for a list without positives.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[0, 1]])
        >>> average_precision_at_k(ranks).numpy()  # (1 / 1 + 2 / 3) / 2
        array([0.83333333])
    """
    above, tied = ranks.above, ranks.tied
    size = ranks.max_items if k is None else k
    limit = tf.cast(size, tf.float64)
    # Positives in the order of their ranks; one that is never a hit is left out.
    order = tf.where(tied > 0, -above, tf.constant(float("nan"), tf.float64))
    positives_above, positives_tied = count_greater_and_equal(order, order)
    slope = tf.math.divide_no_nan(positives_tied - 1, tied - 1)
    harmonic = mean_over_ties(reciprocals(size), above, tied)
    places = tf.clip_by_value(limit - above, 0, tied)
    added = (positives_above + 1 - slope * (above + 1)) * harmonic
    added += slope * tf.math.divide_no_nan(places, tied)
    total = tf.reduce_sum(tf.where(tied > 0, added, tf.zeros_like(added)), axis=-1)
    return tf.math.divide_no_nan(total, tf.minimum(limit, ranks.num_positives))
