"""Metrics of the best positive's rank, MRR, mean and median rank, from `BestPositive`.

If a items are above it and m are tied with it, q of them positive, its rank is a + j,
where j is its place among the tied items. `fold_places` computes the probability of
each place.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._lists.batch import Batch
from rank4class_tf._tf import exact
from rank4class_tf._types import Tensor
from rank4class_tf.metrics.base import CutoffMetric, ReadsBestPositive
from rank4class_tf.metrics.sums import ExactSum
from rank4class_tf.ops.ranks import (
    BestPositive,
    mean_over_ties,
    num_counted,
    table_by_rank,
)

# Where several positives tie, places among the tied items are summed in blocks of this
# many. Blocks of 2,048 take four times as long for 64 lists of 100 tied items, .75 of
# the time for 20,000.
_BLOCK = 128


def fold_places(
    add: Callable, start: Any, tied: Tensor, positives: Tensor, last: Tensor
) -> Any:
    """Folds `add` over the places that the first of several tied positives may have.

    `add` maps a total, a block of places `[places]`, counted from 1, and their
    probabilities `[batch, places]` to the new total. `tied`, `positives` and `last`,
    the last place that counts, are `[batch]`. Lists of fewer than two positives have
    the probability 0.
    """
    several = positives > 1
    end = tf.reduce_max(tf.concat([[0], tf.where(several, last, 0 * last)], axis=0))
    tied, positives = tied[:, tf.newaxis], positives[:, tf.newaxis]

    def step(done: Tensor, probability: Tensor, total: Any) -> tuple:
        places = done + tf.range(1, _BLOCK + 1, dtype=tied.dtype)
        # Place 1 has the probability q / m, place j that of place j - 1 times (r - q +
        # 1) / r for the r = m - j + 1 items that remain.
        remaining = tf.maximum(tied - places + 1, 1)
        ratio = tf.where(places > 1, remaining - positives + 1, positives) / remaining
        ratio = tf.where(
            several[:, tf.newaxis], tf.maximum(ratio, 0), tf.zeros_like(ratio)
        )
        probability = probability[:, -1:] * tf.math.cumprod(ratio, axis=1)
        return done + _BLOCK, probability, add(total, places, probability)

    probability = tf.ones([tf.shape(tied)[0], _BLOCK], tied.dtype)
    state = tf.zeros([], tied.dtype), probability, start
    return tf.while_loop(lambda done, *_: done < end, step, state)[2]


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
        single = mean_over_ties(
            table_by_rank(lambda r: 1 / r, max_rank), best.above, best.tied
        )
        if isinstance(best.max_positives, int) and best.max_positives == 1:
            return single
        places_in_k = tf.cast(max_rank, best.above.dtype) - best.above
        last = tf.minimum(best.tied - best.num_positives + 1, places_in_k)

        def add(total: Tensor, places: Tensor, probability: Tensor) -> Tensor:
            values = probability / (best.above[:, tf.newaxis] + places)
            values = tf.where(places <= last[:, tf.newaxis], values, 0)
            return total + tf.reduce_sum(values, axis=-1)

        several = fold_places(
            add, tf.zeros_like(single), best.tied, best.num_positives, last
        )
        return tf.where(best.num_positives > 1, several, single)


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
    r"""Median rank of the best positive, over lists and random orders of tied items.

    The median is where the weighted distribution of ranks passes one half, midway if
    between two. A list whose best positive is tied is spread over the ranks that it may
    have. A positive whose score is NaN has the last rank. Batches and replicas add to
    one histogram.

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
        # The mass, weight times probability, at the ranks 1, ..., max_rank, and at all
        # above them.
        self.histogram = ExactSum(self, "histogram", (self.max_rank + 1,))

    def _add_batch(self, batch: Batch) -> None:
        def counts_of_best(best: BestPositive) -> list[Tensor]:
            above = tf.where(best.num_positives > 0, best.above, best.num_items - 1)
            return [above, best.tied, best.num_positives]

        dtype = self.histogram.dtype
        counts, weights = self._values_and_weights(batch, dtype, counts_of_best)
        # A list whose labels break a rule is NaN: so is its mass, and the result.
        broken = tf.math.is_nan(counts[0])
        weights = tf.where(broken, float("nan"), weights)
        above, tied, positives = (tf.where(broken, tf.zeros_like(x), x) for x in counts)
        # Counts of 0 are those of a list that is broken, has no weight, or whose
        # positives are NaN.
        tied, positives = tf.maximum(tied, 1), tf.maximum(positives, 1)

        def histogram_of(ranks: Tensor, mass: Tensor) -> Tensor:
            index = tf.cast(tf.minimum(ranks, self.max_rank + 1), tf.int32) - 1
            return tf.math.unsorted_segment_sum(mass, index, self.max_rank + 1)

        # A single positive has equal mass at the ranks a + 1 to a + m: the running sum
        # of a mass that is added at a + 1 and subtracted at a + m + 1. The first part
        # of a split mass adds up without error, so that next to nothing remains beyond
        # a + m.
        mass = tf.where(positives <= 1, weights / tied, 0)
        highest = tf.reduce_max(tf.concat([mass, [0]], axis=0))
        parts = (
            [mass]
            if dtype == tf.float64
            else exact.split(mass, highest, 2 * tf.size(mass))
        )
        changes = [
            histogram_of(above + 1, x) - histogram_of(above + tied + 1, x)
            for x in parts
        ]
        single = tf.add_n([tf.cumsum(change) for change in changes])
        num_beyond = tf.clip_by_value(above + tied - self.max_rank, 0, tied)
        single = tf.concat([single[:-1], [tf.reduce_sum(num_beyond * mass)]], axis=0)

        def add(total: Tensor, places: Tensor, probability: Tensor) -> Tensor:
            mass = weights[:, tf.newaxis] * probability
            return total + histogram_of(above[:, tf.newaxis] + places, mass)

        total = fold_places(add, single, tied, positives, tied - positives + 1)
        self.histogram.add(total[tf.newaxis])

    def result(self) -> Tensor:
        """Returns the median; 0 if there was no list with a positive yet."""
        mass = self.histogram.totals()
        # Scale the largest mass to 1, so that sums of large weights stay finite.
        mass = tf.math.divide_no_nan(mass, tf.reduce_max(mass))
        sums = exact.running_sums(mass[tf.newaxis])[0]
        # A sum that should be half the total, as 1/3 + 1/3 + 1/3 of 2, may miss it by
        # rounding.
        total, slack = sums[-1], 1e-6 * sums[-1]
        lower = tf.math.count_nonzero(sums < total / 2 - slack, dtype=tf.int32)
        upper = tf.math.count_nonzero(sums <= total / 2 + slack, dtype=tf.int32)
        # Midway between lower + 1, the first rank that reaches half the mass, and upper
        # + 1, the first that exceeds it.
        median = tf.cast(lower + upper, mass.dtype) / 2 + 1
        median = tf.where(upper < self.max_rank, median, np.inf)
        median = tf.where(total > 0, median, 0)
        return tf.cast(tf.where(tf.math.is_nan(total), np.nan, median), self.dtype)
