"""Metrics of the best positive's rank, MRR, mean and median rank, from `BestPositive`.

If a items are above it and m are tied with it, q of them positive, its rank is a + j,
where j is its place among the tied items.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._lists.batch import Batch
from rank4class_tf._tf.exact import power_of_two
from rank4class_tf._types import Tensor, Tensors
from rank4class_tf.metrics.base import CutoffMetric, ReadsBestPositive
from rank4class_tf.metrics.sums import RunningSums
from rank4class_tf.ops.ranks import (
    BestPositive,
    mean_over_ties,
    num_counted,
    table_by_rank,
)

# Where several positives tie, places among the tied items are summed in blocks of this
# many. Blocks of 2,048 take four times as long for 64 lists of 100 tied items, .75 of
# the time for 20,000.
_PLACES_PER_BLOCK = 128


@_registry.register("metric")
class MRR(ReadsBestPositive, CutoffMetric):
    r"""Mean reciprocal rank of the best positive, 0 beyond rank k.

    $$\frac{1(r \le k)}{r}, \qquad r = \min_{y \in Y} \pi(y)$$

    Ties count in expectation: with $a$ items above the best positive and $m$ tied with
    it, $q$ of them positive, it is

    $$\sum_{j=1}^{m-q+1} \frac{1(a + j \le k)}{a + j}
    \binom{m - j}{q - 1} \Big/ \binom{m}{q}$$

    Source: Voorhees 1999.

    Example:
        >>> metric = MRR()
        >>> metric.update_state([0], [[1.0, 2.0, 0.0]])  # rank 2
        >>> float(metric.result())
        0.5
    """

    bounds = (0.0, 1.0)

    def compute_at(self, best: BestPositive, k: int | None) -> Tensor:
        max_rank = num_counted(best, k)
        # A single positive has each place among its ties with the same probability.
        reciprocals = table_by_rank(lambda rank: 1 / rank, max_rank)
        single = mean_over_ties(reciprocals, best.above, best.tied)
        if isinstance(best.max_positives, int) and best.max_positives == 1:
            return single
        places_in_k = tf.cast(max_rank, best.above.dtype) - best.above
        last = tf.minimum(best.tied - best.num_positives + 1, places_in_k)
        several = _mean_reciprocal(best, last)
        return tf.where(best.num_positives > 1, several, single)


def _mean_reciprocal(best: BestPositive, last: Tensor) -> Tensor:
    """Mean of 1 / (a + j) over the places j <= `last`, of lists with several positives.

    For other lists it is 0. `last` is `[batch]`.
    """
    several = best.num_positives > 1
    end = tf.reduce_max(tf.where(several, last, 0))
    several, above, tied, positives, last = (
        x[:, tf.newaxis]
        for x in (several, best.above, best.tied, best.num_positives, last)
    )

    def step(done: Tensor, probability: Tensor, total: Tensor) -> Tensors:
        places = done + tf.range(1, _PLACES_PER_BLOCK + 1, dtype=tied.dtype)
        # Place 1 has the probability q / m, place j that of place j - 1 times (r - q +
        # 1) / r for the r = m - j + 1 items that remain.
        remaining = tf.maximum(tied - places + 1, 1)
        ratio = tf.where(places > 1, remaining - positives + 1, positives) / remaining
        ratio = tf.where(several, tf.maximum(ratio, 0), 0)
        probability = probability[:, -1:] * tf.math.cumprod(ratio, axis=1)
        values = tf.where(places <= last, probability / (above + places), 0)
        total += tf.reduce_sum(values, axis=-1)
        return done + _PLACES_PER_BLOCK, probability, total

    done = tf.zeros([], tied.dtype)
    probability = tf.ones([tf.shape(tied)[0], _PLACES_PER_BLOCK], tied.dtype)
    total = tf.zeros_like(best.above)
    *_, total = tf.while_loop(
        lambda done, *_: done < end, step, (done, probability, total)
    )
    return total


@_registry.register("metric")
class MeanRank(ReadsBestPositive):
    r"""Mean rank of the best positive; lower is better.

    $$\min_{y \in Y} \pi(y)$$

    Ties count in expectation: with $a$ items above the best positive and $m$ tied with
    it, $q$ of them positive, its rank is $a + (m + 1) / (q + 1)$. A positive whose
    score is NaN ranks last.

    Source: the "mean rank" of cross-modal retrieval.

    Example:
        >>> metric = MeanRank()
        >>> metric.update_state([0, 1], [[1.0, 2.0, 0.0], [1.0, 2.0, 0.0]])
        >>> float(metric.result())
        1.5
    """

    bounds = (1.0, float("inf"))
    higher_is_better = False

    def compute(self, best: BestPositive) -> list[Tensor]:
        rank = best.above + (best.tied + 1) / (best.num_positives + 1)
        return [tf.where(best.num_positives > 0, rank, best.num_items)]


@_registry.register("metric")
class MedianRank(MeanRank):
    r"""Median rank of the best positive, over lists.

    The median is where the weighted distribution of ranks passes one half, midway if
    between two. A tied positive counts at its mean rank, rounded up. A positive whose
    score is NaN has the last rank. Batches and replicas add to one histogram.

    Source: the "median rank", MedR, of cross-modal retrieval.

    Args:
        max_rank: ranks above it are counted together; a median among them is reported
            as infinite.

    Example:
        >>> metric = MedianRank()
        >>> metric.update_state([0, 1, 2], [[1.0, 2.0, 0.0]] * 3)  # ranks 2, 1 and 3
        >>> float(metric.result())
        2.0
    """

    def __init__(self, max_rank: int = 2**16, **kwargs: Any):
        self.max_rank = _checks.positive_int("max_rank", max_rank)
        super().__init__(**kwargs)

    def _add_states(self) -> None:
        # The weight of the lists at the ranks 1, ..., max_rank, and at all above them.
        self.histogram = RunningSums(self, "histogram", (self.max_rank + 1,))

    def _add_batch(self, batch: Batch) -> None:
        dtype = self.histogram.dtype
        (ranks,), weights = self._values_and_weights(batch, dtype)
        # A list whose labels break a rule has the rank NaN, and makes the result NaN.
        is_broken = tf.math.is_nan(ranks)
        weights = tf.where(is_broken, float("nan"), weights)
        ranks = tf.where(is_broken, tf.ones_like(ranks), tf.math.ceil(ranks))
        # Lists without a positive have the rank 0 and the weight 0.
        places = tf.clip_by_value(ranks, 1, self.max_rank + 1)
        self.histogram.add(weights, tf.cast(places, tf.int32) - 1)

    def result(self) -> Tensor:
        """Returns the median; 0 if there was no list with a positive yet."""
        mass = self.histogram.totals()
        # A power of two keeps all digits, and sums of large weights stay finite.
        scale = tf.cast(power_of_two(tf.reduce_max(mass)), mass.dtype)
        sums = tf.cumsum(mass / scale)
        total = sums[-1]

        # A sum that should be half the total, as 1/3 + 1/3 + 1/3 of 2, may miss it by
        # rounding.
        slack = 1e-6 * total
        lower = tf.math.count_nonzero(sums < total / 2 - slack, dtype=tf.int32)
        upper = tf.math.count_nonzero(sums <= total / 2 + slack, dtype=tf.int32)
        # Midway between lower + 1, the first rank that reaches half the mass, and upper
        # + 1, the first that exceeds it.
        median = tf.cast(lower + upper, mass.dtype) / 2 + 1
        median = tf.where(upper < self.max_rank, median, np.inf)
        median = tf.where(total > 0, median, 0)
        return tf.cast(tf.where(tf.math.is_nan(total), np.nan, median), self.dtype)
