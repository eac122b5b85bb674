"""NDCG."""

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._gain_metric import GainMetric


@_registry.register("metric")
class NDCG(GainMetric):
    r"""Normalised discounted cumulative gain, over the first k ranks.

    $$\mathrm{NDCG@}k = \frac{1}{\mathrm{idealDCG@}k} \sum_{i : \pi(i) \le k}
    g(y_i) \, d(\pi(i)), \qquad g(y) = 2^y - 1, \quad d(r) = \frac{1}{\log_2(1 + r)}$$

    For one positive, NDCG@1 is Top-1 accuracy. Ties count in expectation over their random order.

    Source: Järvelin & Kekäläinen 2002; Rank4Class, equation 1.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        gain: `"exponential"` for `2**y - 1`, `"linear"` for y, or a function of labels that
            increases from 0 at 0; registered with Keras, if the metric is to be saved.
        discount: `"logarithmic"` for `1 / log2(1 + r)`, `"reciprocal"` for `1 / r`, or a function
            of float64 ranks >= 1 that decreases; registered like `gain`.
        name: None means `"ndcg_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None, or a list of these; if `gain` or
            `discount` is neither a known name nor a function.

    Example:
        >>> metric = NDCG(k=5)
        >>> metric.update_state([0], [[1.0, 3.0, 2.0]])  # rank 3: 1 / log2(1 + 3)
        >>> float(metric.result())
        0.5
    """

    _reads = "leading"

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> tf.Tensor:
        """The formula."""
        return ops.ndcg(ranks, k, self.gain, self.discount)
