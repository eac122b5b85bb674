"""AveragePrecisionAtK."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.metrics._base import CutoffMetric
from rank4class_tf.ops.ranking.exact import count_of_all, mean_over_ties, num_counted, reciprocals


@_registry.register("metric")
class AveragePrecisionAtK(CutoffMetric):
    r"""Average precision over the first k ranks; its mean over lists is the MAP.

    $$\frac{1}{\min(k, |Y|)} \sum_{r \le k} \mathrm{Precision@}r \cdot \mathrm{rel}(r)$$

    Ties count in expectation. With `over_all_positives=True` the divisor is $|Y|$, as in TF-Ranking
    and trec_eval: a list with more than k positives then cannot reach 1.

    A positive with $a$ items above, $Q$ of them positive, and $m$ items tied, $q$ of them positive,
    itself counted in both, adds

    $$\frac{1}{m} \sum_{r=a+1}^{\min(a+m, k)}
    \frac{Q + 1 + (r - a - 1) \frac{q - 1}{m - 1}}{r}$$

    to the sum, since each of its ranks has probability $1/m$, and each item that is tied with it
    and comes before it is one of the $q - 1$ other positives with probability $(q - 1)/(m - 1)$.

    With weights of items, what a positive adds is multiplied by its weight, and the divisor is the
    sum of the $\min(k, |Y|)$ highest weights of positives, or of all of them.

    Source: Manning, Raghavan & Schütze 2008, section 8.4; Rankmax, section 5.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        over_all_positives: whether the divisor is the number of positives, even if it exceeds k.
        name: None means `"average_precision_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None, or a list of these.

    Example:
        >>> metric = AveragePrecisionAtK()
        >>> metric.update_state([[0, 2]], [[0.0, 1.0, 2.0]])  # (1 / 1 + 2 / 3) / 2
        >>> round(float(metric.result()), 6)
        0.833333
    """

    _reads = "leading"
    _reads_weights = True
    bounds = (0.0, 1.0)

    def __init__(
        self,
        k: int | Sequence[int] | None = None,
        name: str | None = None,
        over_all_positives: bool = False,
        **kwargs: Any,
    ) -> None:
        self.over_all_positives = _checks.flag("over_all_positives", over_all_positives)
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> tf.Tensor:
        """The formula."""
        above, tied = ranks.above, ranks.tied
        size = num_counted(ranks, k)
        limit = tf.cast(size, above.dtype)
        # Positives in the order of their ranks; one that is never a hit is left out.
        order = tf.where(tied > 0, -above, tf.constant(float("nan"), above.dtype))
        positives_above, positives_tied = (tf.cast(c, above.dtype) for c in count_of_all(order))
        slope = tf.math.divide_no_nan(positives_tied - 1, tied - 1)
        harmonic = mean_over_ties(reciprocals(size), above, tied)
        places = tf.clip_by_value(limit - above, 0, tied)
        added = (positives_above + 1 - slope * (above + 1)) * harmonic
        added += slope * tf.math.divide_no_nan(places, tied)
        added = tf.where(tied > 0, added, tf.zeros_like(added))
        if ranks.weights is not None:
            weights = ranks.weights
            if k is not None and not self.over_all_positives:
                most = tf.minimum(size, tf.shape(weights)[1])
                weights = tf.math.top_k(weights, most).values
            total = tf.reduce_sum(added * ranks.weights, axis=-1)
            return tf.math.divide_no_nan(total, tf.reduce_sum(weights, axis=-1))
        total = tf.reduce_sum(added, axis=-1)
        positives = ranks.num_positives
        best = positives if self.over_all_positives else tf.minimum(limit, positives)
        return tf.math.divide_no_nan(total, best)
