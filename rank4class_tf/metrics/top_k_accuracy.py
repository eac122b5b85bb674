"""TopKAccuracy."""

from rank4class_tf import _checks, _keras, ops
from rank4class_tf.metrics._base import RankingMetric


@_keras.register
class TopKAccuracy(RankingMetric):
    r"""Share of lists with a positive among the k highest scores.

    $$\min(1, k \cdot \mathrm{Precision@}k)$$

    Ties count with the probability that their random order puts a positive into the first k.

    Source: Rank4Class, section 2.2.

    Args:
        k: how many of the highest scores count, >= 1.
        name: None means `"top_<k>_accuracy"`.
        **kwargs: `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer.

    Example:
        >>> metric = TopKAccuracy(k=1)
        >>> metric.update_state([0, 0], [[1.0, 0.0], [1.0, 1.0]])  # a hit, and a tie of two
        >>> float(metric.result())
        0.75
    """

    def __init__(self, k=1, name=None, **kwargs):
        k = _checks.positive_int("k", k)
        super().__init__(name=name or f"top_{k}_accuracy", **kwargs)
        self.k = k

    def compute(self, scores, class_ids, relevance):
        """The formula."""
        return ops.top_k_hit_probability(scores, class_ids, relevance, self.k)
