"""Metrics as formulas of ranks: with exact ranks the metric, with soft ranks its surrogate.

The ranks are an argument: `sigmoid_ranks`, `expected_ranks`, or what a learned sorter returns.
"""

import tensorflow as tf

from rank4class_tf.ops._where import where
from rank4class_tf.ops.dcg import exponential_gain, logarithmic_discount


def ndcg(ranks, relevance):
    r"""Normalised discounted cumulative gain.

    $$\frac{1}{\mathrm{idealDCG}} \sum_i \frac{2^{y_i} - 1}{\log_2(1 + \pi(i))}$$

    Source: Rank4Class, equation 1.

    Args:
        ranks: `[batch, P]`, the rank of each positive, >= 1.
        relevance: `[batch, P]`, its label, 0 where padded.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> ndcg([[3.0]], [[1.0]]).numpy()  # 1 / log2(1 + 3)
        array([0.5], dtype=float32)
    """
    ranks, relevance = tf.convert_to_tensor(ranks), tf.convert_to_tensor(relevance)
    if relevance.shape[1] == 1:
        # The gain cancels. log(2) is rounded as the other logarithm is, so that the best is 1.
        discount = tf.math.log1p(tf.ones_like(ranks)) / tf.math.log1p(ranks)
        return _weighted_mean(discount, relevance)
    gain = exponential_gain(relevance)
    ideal = tf.sort(gain, axis=-1, direction="DESCENDING")
    ideal_ranks = tf.range(1, tf.shape(ideal)[1] + 1, dtype=gain.dtype)
    ideal_dcg = tf.reduce_sum(ideal * logarithmic_discount(ideal_ranks), axis=-1)
    dcg = tf.reduce_sum(gain * logarithmic_discount(ranks), axis=-1)
    return tf.math.divide_no_nan(dcg, ideal_dcg)


def mean_reciprocal_rank(ranks, relevance):
    r"""Reciprocal rank, averaged over the positives.

    $$\frac{\sum_i y_i / \pi(i)}{\sum_i y_i}$$

    Source: ApproxMRR of TF-Ranking. For one positive it is the reciprocal rank of MRR.

    Args:
        ranks: `[batch, P]`, the rank of each positive, >= 1.
        relevance: `[batch, P]`, its label, 0 where padded.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> mean_reciprocal_rank([[1.0, 4.0]], [[3.0, 1.0]]).numpy()  # (3 / 1 + 1 / 4) / (3 + 1)
        array([0.8125], dtype=float32)
    """
    ranks, relevance = tf.convert_to_tensor(ranks), tf.convert_to_tensor(relevance)
    return _weighted_mean(_reciprocal(ranks), relevance)


def average_precision(ranks, ranks_among_positives, relevance):
    r"""Average precision.

    $$\frac{1}{|Y|} \sum_{i \in Y} \frac{\pi_Y(i)}{\pi(i)}$$

    where $\pi_Y$ ranks the positives among themselves.

    Source: Qin et al. 2010, for soft ranks.

    Args:
        ranks: `[batch, P]`, the rank of each positive among all items, >= 1.
        ranks_among_positives: `[batch, P]`, its rank among the positives, >= 1.
        relevance: `[batch, P]`, > 0 for a positive, 0 where padded; grades don't count.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> average_precision([[1.0, 4.0]], [[1.0, 2.0]], [[1.0, 1.0]]).numpy()  # (1 + 2 / 4) / 2
        array([0.75], dtype=float32)
    """
    ranks, relevance = tf.convert_to_tensor(ranks), tf.convert_to_tensor(relevance)
    return _weighted_mean(ranks_among_positives / ranks, tf.cast(relevance > 0, ranks.dtype))


def recall(ranks, relevance, k, temperature=1.0):
    r"""Recall at k, with a soft cutoff for soft ranks.

    $$\frac{1}{|Y|} \sum_{i \in Y} \sigma\left(\frac{k + 1/2 - \pi(i)}{\tau}\right)$$

    Source: Rax's approximate cutoffs.

    Args:
        ranks: `[batch, P]`, the rank of each positive, >= 1.
        relevance: `[batch, P]`, > 0 for a positive, 0 where padded; grades don't count.
        k: the cutoff, >= 1.
        temperature: $\tau$ > 0, in ranks: the smaller, the sharper the cutoff.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> recall([[1.0, 8.0]], [[1.0, 1.0]], k=2, temperature=0.01).numpy()
        array([0.5], dtype=float32)
    """
    ranks, relevance = tf.convert_to_tensor(ranks), tf.convert_to_tensor(relevance)
    hits = tf.sigmoid((k + 0.5 - ranks) / temperature)
    return _weighted_mean(hits, tf.cast(relevance > 0, ranks.dtype))


@tf.custom_gradient
def _reciprocal(x):
    """`tf.math.reciprocal`, but rounded right: that of 1 is 1 on any processor."""
    y = 1 / x
    return y, lambda upstream: tf.raw_ops.ReciprocalGrad(y=y, dy=upstream)


def _weighted_mean(values, weights):
    if values.shape[1] == 1:
        return tf.squeeze(where(weights > 0, values, weights), axis=1)  # A NaN stays one.
    weights = tf.cast(weights, values.dtype)
    total = tf.reduce_sum(weights * values, axis=-1)
    return tf.math.divide_no_nan(total, tf.reduce_sum(weights, axis=-1))
