"""Losses that are metrics of soft ranks."""

from rank4class_tf.ops import _positives
from rank4class_tf.ops.ranks import sigmoid_ranks
from rank4class_tf.ops.smooth_metrics import mean_reciprocal_rank, ndcg


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
    return -ndcg(sigmoid_ranks(scores, class_ids, temperature), lists.relevance)


def approx_mrr_loss(scores, class_ids, relevance=None, temperature=0.1):
    r"""Negative reciprocal rank with soft ranks, averaged over the positives.

    $$-\frac{1}{\sum_i y_i} \sum_i \frac{y_i}{\pi(i)}, \qquad
    \pi(i) = 1 + \sum_{j \ne i} \sigma\left(\frac{s_j - s_i}{T}\right)$$

    Source: Qin et al. 2010.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        temperature: > 0, of the sigmoid.

    Returns:
        `[batch]`, in [-1, 0]; 0 for a list without positives.

    Example:
        >>> approx_mrr_loss([[9.0, 9.0, 0.0]], [[1]]).numpy()  # 1 / (1 + 1/2)
        array([-0.6666667], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)
    return -mean_reciprocal_rank(sigmoid_ranks(scores, class_ids, temperature), lists.relevance)
