"""NDCG."""

import tensorflow as tf

from rank4class_tf import _checks, _keras, ops
from rank4class_tf.metrics._base import RankingMetric


@_keras.register
class NDCG(RankingMetric):
    r"""Normalised discounted cumulative gain, over the first k ranks.

    $$\mathrm{NDCG@}k = \frac{1}{\mathrm{idealDCG}} \sum_{i : \pi(i) \le k}
    \frac{2^{y_i} - 1}{\log_2(1 + \pi(i))}$$

    For one positive, NDCG@1 is Top-1 accuracy. Ties count in expectation over their random order.

    Source: Järvelin & Kekäläinen 2002; Rank4Class, equation 1.

    Args:
        k: cutoff, or None for all ranks.
        name: None means `"ndcg_at_<k>"`.
        **kwargs: `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None.

    Example:
        >>> metric = NDCG(k=5)
        >>> metric.update_state([0], [[1.0, 3.0, 2.0]])  # rank 3: 1 / log2(1 + 3)
        >>> float(metric.result())
        0.5
    """

    def __init__(self, k=None, name=None, **kwargs):
        if k is not None:
            k = _checks.positive_int("k", k)
        super().__init__(name=name or ("ndcg" if k is None else f"ndcg_at_{k}"), **kwargs)
        self.k = k

    def compute(self, scores, class_ids, relevance):
        """The formula."""
        above, tied = ops.count_above_and_tied(scores, class_ids)
        discount = ops.expected_discount(above, tied, self.k, tf.shape(scores)[1])
        return ops.ndcg_from_discount(discount, tf.cast(relevance, tf.float64), self.k)
