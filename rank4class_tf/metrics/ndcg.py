"""NDCG."""

from rank4class_tf import _keras, ops
from rank4class_tf.metrics._base import CutoffMetric


@_keras.register
class NDCG(CutoffMetric):
    r"""Normalised discounted cumulative gain, over the first k ranks.

    $$\mathrm{NDCG@}k = \frac{1}{\mathrm{idealDCG}} \sum_{i : \pi(i) \le k}
    \frac{2^{y_i} - 1}{\log_2(1 + \pi(i))}$$

    For one positive, NDCG@1 is Top-1 accuracy. Ties count in expectation over their random order.

    Source: Järvelin & Kekäläinen 2002; Rank4Class, equation 1.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        name: None means `"ndcg_at_<k>"`.
        **kwargs: `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None, or a list of these.

    Example:
        >>> metric = NDCG(k=5)
        >>> metric.update_state([0], [[1.0, 3.0, 2.0]])  # rank 3: 1 / log2(1 + 3)
        >>> float(metric.result())
        0.5
    """

    def __init__(self, k=None, name=None, **kwargs):
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks, k):
        """The formula."""
        return ops.ndcg_at_k(ranks, k)
