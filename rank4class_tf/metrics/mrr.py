"""MRR."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._base import CutoffMetric
from rank4class_tf.metrics._best_positive import best_positive, fold_places
from rank4class_tf.ops.ranking.exact import mean_over_ties, num_counted, reciprocals


@_registry.register("metric")
class MRR(CutoffMetric):
    r"""Mean reciprocal rank of the best positive, 0 beyond rank k.

    $$\frac{1(r \le k)}{r}, \qquad r = \min_{y \in Y} \pi(y)$$

    Ties count in expectation: with $a$ items above the best positive and $m$ tied with it, $q$ of
    them positive, it is

    $$\sum_{j=1}^{m-q+1} \frac{1(a + j \le k)}{a + j} \binom{m - j}{q - 1} \Big/ \binom{m}{q}$$

    Source: Voorhees 1999.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        name: None means `"mrr_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None, or a list of these.

    Example:
        >>> metric = MRR()
        >>> metric.update_state([0], [[1.0, 2.0, 0.0]])  # rank 2
        >>> float(metric.result())
        0.5
    """

    _reads = "best"
    bounds = (0.0, 1.0)

    def __init__(
        self, k: int | Sequence[int] | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> tf.Tensor:
        """The formula."""
        size = num_counted(ranks, k)
        if ranks.tied.shape[1] == 1:
            return mean_over_ties(reciprocals(size), ranks.above, ranks.tied)[:, 0]
        above, tied, positives = best_positive(ranks)
        last = tf.minimum(tied - positives + 1, tf.cast(size, above.dtype) - above)

        def add(total, place, probability):
            counted = place <= last[:, tf.newaxis]
            values = probability / (above[:, tf.newaxis] + place)
            return total + tf.reduce_sum(tf.where(counted, values, tf.zeros_like(values)), axis=-1)

        single = mean_over_ties(reciprocals(size), above, tied)
        several = fold_places(add, tf.zeros_like(single), tied, positives, last)
        return tf.where(positives > 1, several, single)
