"""Softmax cross-entropy, and its forms in which an item competes with less relevant ones only."""

import tensorflow as tf

from rank4class_tf.ops import _pairs, _positives
from rank4class_tf.ops._gather import gather
from rank4class_tf.ops._search import searchsorted
from rank4class_tf.ops.dcg import exponential_gain


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
    scores, positives = _below_highest(lists, temperature)
    log_total = tf.math.log(tf.reduce_sum(tf.exp(scores), axis=-1, keepdims=True))
    return tf.reduce_sum(lists.relevance * (log_total - positives), axis=-1)


def unique_softmax_loss(scores, class_ids, relevance=None, temperature=1.0):
    r"""Softmax in which each positive competes with the less relevant items only.

    $$-\sum_i (2^{y_i} - 1) \log
    \frac{e^{s_i / T}}{e^{s_i / T} + \sum_{j : y_j < y_i} e^{s_j / T}}$$

    Source: Zhu & Klabjan 2020, "Listwise learning to rank by exploring unique ratings", as in
    TF-Ranking.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        temperature: > 0.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> unique_softmax_loss([[0.0, 0.0, 0.0]], [[0, 1]]).numpy()  # 2 log(2)
        array([1.3862944], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)
    scores, positives = _below_highest(lists, temperature)
    less_relevant = _log_total_of_less_relevant(lists, scores, positives, with_ties=False)
    log_total = tf.reduce_logsumexp(tf.stack([positives, less_relevant]), axis=0)
    return tf.reduce_sum(exponential_gain(lists.relevance) * (log_total - positives), axis=-1)


def list_mle_loss(scores, class_ids, relevance=None, temperature=1.0):
    r"""Negative log-likelihood of the positives' order, the most relevant first.

    $$-\sum_{i : y_i > 0} \log \frac{e^{s_i / T}}{\sum_{j : y_j \le y_i} e^{s_j / T}}$$

    Without ties among the labels this is the Plackett-Luce likelihood of ListMLE. Where positives
    tie, each competes with all of them (Breslow's form): the loss depends on no order of the tied
    items, and bounds that of every order from above. The order of the items with label 0, which is
    no information, does not count. With one positive the loss is softmax cross-entropy.

    Source: Xia et al. 2008, "Listwise approach to learning to rank"; Breslow 1974 for ties.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        temperature: > 0.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> list_mle_loss([[0.0, 0.0, 0.0]], [[0, 1]], [[1.0, 2.0]]).numpy()  # log(3) + log(2)
        array([1.7917595], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)
    scores, positives = _below_highest(lists, temperature)
    log_total = _log_total_of_less_relevant(lists, scores, positives, with_ties=True)
    losses = tf.where(lists.relevance > 0, log_total - positives, tf.zeros_like(positives))
    return tf.reduce_sum(losses, axis=-1)


def _below_highest(lists, temperature):
    """The scores and those of positives over the temperature, less the highest of the list.

    Only differences count, which have the more digits the nearer to 0 the scores are.
    """
    scores = lists.scores / temperature
    highest = tf.stop_gradient(tf.reduce_max(scores, axis=-1, keepdims=True))
    # The minimum changes nothing. Without it TensorFlow rewrites `a - (b - highest)` in a graph as
    # `(a + highest) - b`.
    return scores - highest, tf.minimum(lists.positive_scores / temperature - highest, 0)


def _log_total_of_less_relevant(lists, scores, positives, with_ties):
    """Log of the summed exponentials of the less relevant items, for each positive `[batch, P]`.

    Args:
        lists: `Positives`.
        scores: `[batch, n]`, the scores to take instead of those of `lists`.
        positives: `[batch, P]`, the positive ones among them.
        with_ties: whether equally relevant items, the positive included, belong to the sum.
    """
    floor = _positives.lowest(scores.dtype)
    there = lists.relevance > 0
    irrelevant = tf.where(lists.item_relevance() > 0, floor, scores)
    irrelevant = tf.reduce_logsumexp(irrelevant, axis=-1, keepdims=True)

    positives = tf.where(there, positives, floor)
    width = lists.relevance.shape[1]
    if width is not None and width <= _pairs.FEW:
        relevant = _of_less_relevant_by_pairs(positives, lists.relevance, floor, with_ties)
    else:
        relevant = _of_less_relevant_by_sorting(positives, lists.relevance, floor, with_ties)
    irrelevant = tf.broadcast_to(irrelevant, tf.shape(relevant))
    return tf.reduce_logsumexp(tf.stack([irrelevant, relevant]), axis=0)


def _of_less_relevant_by_pairs(positives, relevance, floor, with_ties):
    compare = tf.less_equal if with_ties else tf.less
    competes = compare(relevance[:, tf.newaxis, :], relevance[:, :, tf.newaxis])
    return tf.reduce_logsumexp(tf.where(competes, positives[:, tf.newaxis, :], floor), axis=-1)


def _of_less_relevant_by_sorting(positives, relevance, floor, with_ties):
    # In falling order of relevance a sum over the less relevant is a suffix.
    order = tf.argsort(relevance, axis=-1, direction="DESCENDING")
    ranked = -tf.gather(relevance, order, batch_dims=1)
    suffix = tf.math.cumulative_logsumexp(gather(positives, order), axis=-1, reverse=True)
    suffix = tf.pad(suffix, [[0, 0], [0, 1]], constant_values=floor)
    start = searchsorted(ranked, -relevance, side="left" if with_ties else "right")
    return gather(suffix, start)
