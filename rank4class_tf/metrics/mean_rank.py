"""MeanRank."""

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._base import RankingMetric
from rank4class_tf.metrics._best_positive import rank_of_best


@_registry.register("metric")
class MeanRank(RankingMetric):
    r"""Mean rank of the best positive; lower is better.

    $$\min_{y \in Y} \pi(y)$$

    Ties count in expectation: with $a$ items above the best positive and $m$ tied with it, $q$ of
    them positive, its rank is $a + (m + 1) / (q + 1)$.
    A positive whose score is NaN has the last rank.

    Source: the "mean rank" of cross-modal retrieval.

    Args:
        **kwargs: `label_format`, `name`, `dtype`: see `RankingMetric`.

    Example:
        >>> metric = MeanRank()
        >>> metric.update_state([0, 1], [[1.0, 2.0, 0.0], [1.0, 2.0, 0.0]])
        >>> float(metric.result())
        1.5
    """

    _reads = "best"
    bounds = (1.0, float("inf"))
    higher_is_better = False

    def compute(self, ranks: ops.Ranks) -> list[tf.Tensor]:
        """The formula."""
        return [rank_of_best(ranks)]
