"""PropensityScoredNDCG."""

import numpy as np
import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._propensity_scored import PropensityScored
from rank4class_tf.ops.gains import discounted_sum
from rank4class_tf.ops.ranking.exact import mean_over_ties


@_registry.register("metric")
class PropensityScoredNDCG(PropensityScored):
    r"""PSnDCG@k: NDCG in which rare labels, which are more likely to be missing, count more.

    $$\frac{\sum_i D_i(\pi_i)}{\sum_i \max_\pi D_i(\pi)}, \qquad
    D_i(\pi) = \sum_{l \in Y_i : \pi(l) \le k} \frac{1}{p_l \log_2(1 + \pi(l))} \Big/
    \sum_{r=1}^{\min(k, |Y_i|)} \frac{1}{\log_2(1 + r)}$$

    over all lists i with the positives $Y_i$: the gain over the best possible one, as in the tables
    of the Extreme Classification Repository. The value of a list is its own ratio, and its weight
    is the best possible gain. Graded relevance counts as 1, and ties count in expectation.

    Source: Jain, Prabhu & Varma 2016, "Extreme Multi-label Loss Functions", section 4.

    Args:
        k: cutoff, >= 1.
        propensities: a number in (0, 1] for each class, from `metrics.propensities`.
        name: None means `"propensity_scored_ndcg_at_<k>"`.
        **kwargs: `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if an argument is out of range, or a class has no propensity.

    Example:
        >>> metric = PropensityScoredNDCG(k=3, propensities=[0.5, 0.5, 1.0])
        >>> metric.update_state([0], [[1.0, 3.0, 2.0]])  # rank 3: 1 / log2(1 + 3)
        >>> float(metric.result())
        0.5
    """

    def gains(self, ranks: ops.Ranks) -> list[tf.Tensor]:
        """The formula."""
        table = 1 / np.log2(1 + np.arange(1, self.k + 1, dtype=np.float64))
        width = tf.minimum(self.k, tf.shape(ranks.relevance)[1])
        best = tf.math.top_k(ranks.relevance, width).values
        gain = tf.reduce_sum(
            ranks.relevance * mean_over_ties(table, ranks.above, ranks.tied), axis=-1
        )
        number = tf.minimum(tf.cast(ranks.num_positives, tf.int32), self.k)
        of_number = tf.gather(np.concatenate([[1.0], np.cumsum(table)]), number)
        of_number = tf.cast(of_number, gain.dtype)
        return [gain / of_number, discounted_sum(best, table) / of_number]
