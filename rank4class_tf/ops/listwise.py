"""Listwise and pairwise ranking losses at the cost of softmax (Rank4Class, section 4.1).

Only positives head a sum over items, so that a loss costs O(P n) for P positives of n items.
"""

import numpy as np
import tensorflow as tf

from rank4class_tf.ops import _positives
from rank4class_tf.ops.dcg import exponential_gain, logarithmic_discount
from rank4class_tf.ops.ranks import sigmoid_ranks


def softmax_loss(scores, class_ids, relevance=None, temperature=1.0):
    r"""Softmax cross-entropy.

    $$-\sum_i y_i \log \mathrm{softmax}(s / T)_i$$

    Source: Rank4Class, section 4.1.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        temperature: > 0.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> softmax_loss([[0.0, 0.0]], [[1]]).numpy()  # log(2)
        array([0.6931472], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)
    log_total = tf.reduce_logsumexp(lists.scores / temperature, axis=-1, keepdims=True)
    log_probabilities = lists.positive_scores / temperature - log_total
    return -tf.reduce_sum(lists.relevance * log_probabilities, axis=-1)


def pairwise_logistic_loss(scores, class_ids, relevance=None, temperature=1.0):
    r"""Pairwise logistic loss, PairLog.

    $$\sum_{i,j} 1(y_i > y_j) \log\left(1 + e^{-(s_i - s_j) / T}\right)$$

    Source: Rank4Class, equation 2, with $\sigma = 1 / T$.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        temperature: > 0.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> pairwise_logistic_loss([[0.0, 0.0, 0.0]], [[1]]).numpy()  # 2 log(2)
        array([1.3862944], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)

    def pair_loss(s, p):
        return tf.math.softplus((s - p) / temperature)

    if lists.relevance.shape[1] == 1:
        # With a single positive every item but itself is less relevant; its own pair is log(2).
        losses = lists.sum_over_items(pair_loss) - np.log(2.0)
    else:
        losses = lists.sum_over_items(
            lambda s, y, p, y_p: tf.where(y < y_p, pair_loss(s, p), tf.zeros([], s.dtype)),
            [lists.item_relevance()],
            [lists.relevance],
        )
    return tf.reduce_sum(tf.where(lists.relevance > 0, losses, tf.zeros([], losses.dtype)), axis=-1)


def approx_ndcg_loss(scores, class_ids, relevance=None, temperature=0.1):
    r"""Negative NDCG with soft ranks.

    $$-\frac{1}{\mathrm{idealDCG}} \sum_i \frac{2^{y_i} - 1}{\log_2(1 + \pi(i))}, \qquad
    \pi(i) = 1 + \sum_{j \ne i} \sigma\left(\frac{s_j - s_i}{T}\right)$$

    Source: Qin et al. 2010; Rank4Class, section 4.1.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        temperature: > 0, of the sigmoid.

    Returns:
        `[batch]`, in [-1, 0]; 0 for a list without positives.

    Example:
        >>> approx_ndcg_loss([[9.0, 0.0, 0.0]], [[0]]).numpy()
        array([-1.], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)
    ranks = sigmoid_ranks(scores, class_ids, temperature)
    return -ndcg(ranks, lists.relevance)


def ndcg(ranks, relevance):
    r"""Normalised discounted cumulative gain from given ranks, exact or soft.

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
    gain = exponential_gain(relevance)
    ideal = tf.sort(gain, axis=-1, direction="DESCENDING")
    ideal_ranks = tf.range(1, tf.shape(ideal)[1] + 1, dtype=gain.dtype)
    ideal_dcg = tf.reduce_sum(ideal * logarithmic_discount(ideal_ranks), axis=-1)
    dcg = tf.reduce_sum(gain * logarithmic_discount(ranks), axis=-1)
    return tf.math.divide_no_nan(dcg, ideal_dcg)
