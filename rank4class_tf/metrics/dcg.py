"""DCG."""

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._gain_metric import GainMetric


@_registry.register("metric")
class DCG(GainMetric):
    r"""Discounted cumulative gain, over the first k ranks.

    $$\mathrm{DCG@}k = \sum_{i : \pi(i) \le k} g(y_i) \, d(\pi(i))$$

    Ties count in expectation over their random order.

    Source: Järvelin & Kekäläinen 2002; Rank4Class, equation 1.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        gain: `"exponential"`, `"linear"` or a function: see `NDCG`.
        discount: `"logarithmic"`, `"reciprocal"` or a function: see `NDCG`.
        name: None means `"dcg_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None, or a list of these; if `gain` or
            `discount` is neither a known name nor a function.

    Example:
        >>> metric = DCG(k=5)
        >>> metric.update_state([[0.0, 2.0]], [[0.0, 1.0]])  # (2**2 - 1) / log2(1 + 1)
        >>> float(metric.result())
        3.0
    """

    _reads = "leading"

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> tf.Tensor:
        """The formula."""
        return ops.dcg(ranks, k, self.gain, self.discount)
