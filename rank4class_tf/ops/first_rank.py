"""Metrics of the best-ranked positive, from ranks; ties in expectation."""

import tensorflow as tf

from rank4class_tf.ops._binomial import log_binomial
from rank4class_tf.ops.ranks import mean_over_ties, reciprocals

# Where several positives tie, the ranks of the tied items are summed in blocks of this many.
_BLOCK = 128


def best_group(ranks):
    """The group of tied items that holds the best positive.

    Args:
        ranks: `Ranks`.

    Returns:
        Three `[batch]` float64: the items above the group, its items, its positives. All 0 for a
        list whose positives are never a hit.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 1.0, 1.0]], [[1, 2]])
        >>> [x.numpy() for x in best_group(ranks)]
        [array([1.]), array([3.]), array([2.])]
    """
    infinity = tf.constant(float("inf"), tf.float64)
    above = tf.where(ranks.tied > 0, ranks.above, infinity)
    best = tf.reduce_min(above, axis=-1, keepdims=True)
    is_best = tf.cast((above == best) & (ranks.tied > 0), tf.float64)
    positives = tf.reduce_sum(is_best, axis=-1)
    tied = tf.math.divide_no_nan(tf.reduce_sum(ranks.tied * is_best, axis=-1), positives)
    return tf.where(positives > 0, best[:, 0], tf.zeros_like(tied)), tied, positives


def top_k_hit_probability(ranks, k):
    r"""Probability that some positive is among the k highest scores, ties in random order.

    With $a$ items above the best positive and $m$ tied with it, $q$ of them positive, and
    $r = \min(\max(k - a, 0), m)$ places left:

    $$1 - \binom{m - q}{r} \Big/ \binom{m}{r}$$

    Args:
        ranks: `Ranks`.
        k: positive integer.

    Returns:
        `[batch]` float64, in [0, 1]; 0 for a list without positives.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[2.0, 2.0, 1.0]], [[0]])
        >>> top_k_hit_probability(ranks, k=1).numpy()
        array([0.5])
    """
    above, tied, positives = best_group(ranks)
    places = tf.clip_by_value(k - above, 0, tied)
    miss = tf.exp(log_binomial(tied - positives, places) - log_binomial(tied, places))
    return tf.where(positives > 0, 1 - miss, tf.zeros_like(miss))


def reciprocal_rank(ranks, k=None):
    r"""Reciprocal rank of the best positive, 0 beyond rank k.

    With $a$ items above the best positive and $m$ tied with it, $q$ of them positive:

    $$\sum_{j=1}^{m-q+1} \frac{1(a + j \le k)}{a + j} \binom{m - j}{q - 1} \Big/ \binom{m}{q}$$

    Args:
        ranks: `Ranks`.
        k: positive integer, or None for all ranks.

    Returns:
        `[batch]` float64, in [0, 1]; 0 for a list without positives.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[2.0, 2.0, 3.0]], [[0]])
        >>> reciprocal_rank(ranks).numpy()  # (1 / 2 + 1 / 3) / 2
        array([0.41666667])
    """
    above, tied, positives = best_group(ranks)
    size = ranks.max_items if k is None else k
    single = mean_over_ties(reciprocals(size), above, tied)
    several = positives > 1
    last = tf.minimum(tied - positives + 1, tf.cast(size, tf.float64) - above)
    last = tf.where(several, last, tf.zeros_like(last))
    end = tf.reduce_max(tf.concat([[0.0], last], axis=0))

    def add_block(start, total):
        place = start + tf.range(1, _BLOCK + 1, dtype=tf.float64)
        counted = place <= last[:, tf.newaxis]
        share = tf.exp(
            log_binomial(tf.maximum(tied[:, tf.newaxis] - place, 0), positives[:, tf.newaxis] - 1)
            - log_binomial(tied, positives)[:, tf.newaxis]
        )
        values = tf.where(counted, share / (above[:, tf.newaxis] + place), tf.zeros_like(share))
        return start + _BLOCK, total + tf.reduce_sum(values, axis=-1)

    start = (tf.zeros([], tf.float64), tf.zeros_like(single))
    _, total = tf.while_loop(lambda place, _: place < end, add_block, start)
    return tf.where(several, total, single)
