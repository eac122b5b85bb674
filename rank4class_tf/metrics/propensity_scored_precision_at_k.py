"""PropensityScoredPrecisionAtK."""

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._hits import hit_shares
from rank4class_tf.metrics._propensity_scored import PropensityScored


@_registry.register("metric")
class PropensityScoredPrecisionAtK(PropensityScored):
    r"""PSP@k: precision in which rare labels, which are more likely to be missing, count more.

    $$\frac{\sum_i \sum_{l \in Y_i \cap \mathrm{Top}_k} 1 / p_l}
    {\sum_i \max_{S \subseteq Y_i, |S| \le k} \sum_{l \in S} 1 / p_l}$$

    over all lists i with the positives $Y_i$: the gain over the best possible one, as in the tables
    of the Extreme Classification Repository. The value of a list is its own ratio, and its weight
    is the best possible gain. Graded relevance counts as 1, and ties count in expectation.

    Source: Jain, Prabhu & Varma 2016, "Extreme Multi-label Loss Functions", section 4.

    Args:
        k: cutoff, >= 1.
        propensities: a number in (0, 1] for each class, from `metrics.propensities`.
        name: None means `"propensity_scored_precision_at_<k>"`.
        **kwargs: `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if an argument is out of range, or a class has no propensity.

    Example:
        >>> metric = PropensityScoredPrecisionAtK(k=1, propensities=[0.5, 0.25, 1.0])
        >>> metric.update_state([[0, 1]], [[3.0, 1.0, 2.0]])  # (1 / 0.5) / (1 / 0.25)
        >>> float(metric.result())
        0.5
    """

    def gains(self, ranks: ops.Ranks) -> list[tf.Tensor]:
        """The formula."""
        shares = hit_shares(ranks, self.k)
        best = tf.math.top_k(ranks.relevance, tf.minimum(self.k, tf.shape(ranks.relevance)[1]))
        return [tf.reduce_sum(x, axis=-1) for x in (shares * ranks.relevance, best.values)]
