"""Ranks: exact, with ties in expectation, and soft."""

import numpy as np
import tensorflow as tf

from rank4class_tf.ops import _pairs, _positives
from rank4class_tf.ops._binomial import log_binomial


def sigmoid_ranks(scores, class_ids, temperature=0.1):
    r"""Soft ranks of the positives.

    $$\pi(p) = 1 + \sum_{j \ne p} \sigma\left(\frac{s_j - s_p}{T}\right)$$

    Source: Qin et al. 2010; Rank4Class, equation 3, with $\alpha = 1 / T$.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        temperature: > 0. The smaller, the closer to the exact ranks, and the smaller the gradient
            of items that are far apart.

    Returns:
        `[batch, P]`, each in [1, n]; meaningless where padded.

    Example:
        >>> sigmoid_ranks([[3.0, 1.0, 2.0]], [[1, 0]], temperature=0.01).numpy()
        array([[3., 1.]], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids)
    # The item itself adds sigmoid(0) = 1/2 to the sum over all items.
    return 0.5 + lists.sum_over_items(lambda s, p: tf.sigmoid((s - p) / temperature))


def count_above_and_tied(scores, class_ids):
    """Counts the items above and the items tied with each positive.

    Args:
        scores: `[batch, n]`; a NaN marks an item that is not there or that ranks last.
        class_ids: `[batch, P]` integers, padded with -1.

    Returns:
        Two tensors `[batch, P]` of the dtype of the scores. A positive is tied with itself; one
        whose score is NaN has 0 above and 0 tied, and so has padding.

    Example:
        >>> above, tied = count_above_and_tied([[3.0, 1.0, 1.0, 2.0]], [[1, 0]])
        >>> above.numpy(), tied.numpy()
        (array([[2., 0.]], dtype=float32), array([[2., 1.]], dtype=float32))
    """
    scores = tf.convert_to_tensor(scores)
    class_ids = tf.convert_to_tensor(class_ids)
    there = tf.cast(class_ids >= 0, scores.dtype)
    positives = tf.gather(scores, tf.maximum(class_ids, 0), batch_dims=1)

    def count(compare):
        sums = _pairs.sum_over_items(
            lambda s, p: tf.cast(compare(s, p), scores.dtype),
            [scores],
            [positives],
            _pairs.visited(there),
        )
        return sums * there

    return count(tf.greater), count(tf.equal)


def expected_discount(above, tied, k=None, max_rank=None):
    r"""Discount of an item over random orders of those tied with it.

    $$\frac{1}{m} \sum_{r=a+1}^{a+m} \frac{1(r \le k)}{\log_2(1 + r)}$$

    with $a$ items above and $m$ tied, the item itself counted. 0 where $m = 0$.

    Args:
        above: number of items above.
        tied: number of items tied, of the shape of `above`.
        k: cutoff, or None for none; then `max_rank` is needed.
        max_rank: scalar integer, the number of items, used where `k` is None.

    Returns:
        float64, of the shape of `above`, in [0, 1].

    Example:
        >>> expected_discount([0.0, 0.0], [1.0, 2.0], k=1).numpy()
        array([1. , 0.5])
    """
    if k is None:
        ranks = tf.range(1, max_rank + 1, dtype=tf.float64)
        discounts = np.log(2.0) / tf.math.log1p(ranks)
        limit = tf.cast(max_rank, tf.int32)
    else:
        discounts = tf.constant(1 / np.log2(1 + np.arange(1, k + 1, dtype=np.float64)))
        limit = tf.constant(k)
    sums = tf.concat([tf.zeros([1], tf.float64), tf.cumsum(discounts)], axis=0)

    def up_to(rank):
        return tf.gather(sums, tf.minimum(tf.cast(rank, tf.int32), limit))

    above, tied = tf.convert_to_tensor(above), tf.convert_to_tensor(tied)
    return tf.math.divide_no_nan(up_to(above + tied) - up_to(above), tf.cast(tied, tf.float64))


def top_k_hit_probability(scores, class_ids, relevance, k):
    r"""Probability that some positive is among the k highest scores, ties in random order.

    With $a$ items above the best positive and $m$ tied with it, $q$ of them positive, and
    $r = \min(\max(k - a, 0), m)$ places left:

    $$1 - \binom{m - q}{r} \Big/ \binom{m}{r}$$

    Args:
        scores: `[batch, n]`; a NaN marks an item that is not there or that ranks last.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, 0 where padded.
        k: positive integer.

    Returns:
        `[batch]` float64, in [0, 1]; 0 for a list without positives.

    Example:
        >>> top_k_hit_probability([[2.0, 2.0, 1.0]], [[0]], [[1.0]], k=1).numpy()
        array([0.5])
    """
    above, tied = (tf.cast(x, tf.float64) for x in count_above_and_tied(scores, class_ids))
    ranked = tf.greater(relevance, 0) & (tied > 0)
    above = tf.where(ranked, above, tf.constant(float("inf"), tf.float64))
    best = tf.reduce_min(above, axis=-1, keepdims=True)
    is_best = tf.cast(ranked & (above == best), tf.float64)
    positives = tf.reduce_sum(is_best, axis=-1)
    tied = tf.math.divide_no_nan(tf.reduce_sum(tied * is_best, axis=-1), positives)
    places = tf.clip_by_value(k - best[:, 0], 0, tied)

    others = tied - positives
    log_miss = log_binomial(others, places) - log_binomial(tied, places)
    miss = tf.exp(log_miss)
    return tf.where(positives > 0, 1 - miss, tf.zeros_like(miss))
