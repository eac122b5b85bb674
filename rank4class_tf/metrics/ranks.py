"""Metrics of the best positive's rank, MRR, mean and median rank, from `BestPositive`.

With a items above it and m tied, q of them positive, its rank is a + j with the probability that
`fold_places` computes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._tf import exact
from rank4class_tf._tf.gradients import has_nan
from rank4class_tf._types import Array, Tensor
from rank4class_tf.metrics.base import CutoffMetric, ReadsBestPositive
from rank4class_tf.metrics.sums import ExactSum
from rank4class_tf.ops.ranks import BestPositive, mean_over_ties, num_counted, table_by_rank

# Where several positives tie, the ranks of the tied items are summed in blocks of this many. Blocks
# of 2,048 take four times as long for 64 lists of 100 tied items, .75 of the time for 20,000.
_PLACES = 128


def fold_places(add: Callable, start: Any, tied: Tensor, positives: Tensor, last: Tensor) -> Any:
    """Folds the places of the first of several positives among tied items.

    `add` maps a total, places `[places]` from 1 on and their probabilities `[batch, places]` to the
    new total; `last` is the last place that counts. Lists of fewer than two positives add nothing.
    """
    several = positives > 1
    end = tf.reduce_max(tf.concat([[0], tf.where(several, last, 0 * last)], axis=0))
    tied, positives = tied[:, tf.newaxis], positives[:, tf.newaxis]

    def step(done: Tensor, probability: Tensor, total: Any) -> tuple:
        places = done + tf.range(1, _PLACES + 1, dtype=tied.dtype)
        # Place 1 has the probability q / m, each further place that of the one before it times
        # (left - q + 1) / left.
        left = tf.maximum(tied - places + 1, 1)
        ratio = tf.where(places > 1, left - positives + 1, positives) / left
        ratio = tf.where(several[:, tf.newaxis], tf.maximum(ratio, 0), tf.zeros_like(ratio))
        probability = probability[:, -1:] * tf.math.cumprod(ratio, axis=1)
        return done + _PLACES, probability, add(total, places, probability)

    probability = tf.ones([tf.shape(tied)[0], _PLACES], tied.dtype)
    start = tf.zeros([], tied.dtype), probability, start
    return tf.while_loop(lambda done, *_: done < end, step, start)[2]


@_registry.register("metric")
class MRR(ReadsBestPositive, CutoffMetric):
    r"""Mean reciprocal rank of the best positive, 0 beyond rank k.

    $$\frac{1(r \le k)}{r}, \qquad r = \min_{y \in Y} \pi(y)$$

    Ties count in expectation: with $a$ items above the best positive and $m$ tied with it, $q$ of
    them positive, it is

    $$\sum_{j=1}^{m-q+1} \frac{1(a + j \le k)}{a + j} \binom{m - j}{q - 1} \Big/ \binom{m}{q}$$

    Source: Voorhees 1999.

    Example:
        >>> metric = MRR()
        >>> metric.update_state([0], [[1.0, 2.0, 0.0]])  # rank 2
        >>> float(metric.result())
        0.5
    """

    bounds = (0.0, 1.0)

    def compute_at(self, best: BestPositive, k: int | None) -> Tensor:
        size = num_counted(best, k)
        # With one positive its place among the ties is uniform, and a table does.
        single = mean_over_ties(table_by_rank(lambda r: 1 / r, size), best.above, best.tied)
        if isinstance(best.most, int) and best.most == 1:
            return single
        left = tf.cast(size, best.above.dtype) - best.above
        last = tf.minimum(best.tied - best.positives + 1, left)

        def add(total: Tensor, places: Tensor, probability: Tensor) -> Tensor:
            values = probability / (best.above[:, tf.newaxis] + places)
            values = tf.where(places <= last[:, tf.newaxis], values, 0)
            return total + tf.reduce_sum(values, axis=-1)

        several = fold_places(add, tf.zeros_like(single), best.tied, best.positives, last)
        return tf.where(best.positives > 1, several, single)


@_registry.register("metric")
class MeanRank(ReadsBestPositive):
    r"""Mean rank of the best positive; lower is better.

    $$\min_{y \in Y} \pi(y)$$

    Ties count in expectation: with $a$ items above the best positive and $m$ tied with it, $q$ of
    them positive, its rank is $a + (m + 1) / (q + 1)$. A positive whose score is NaN ranks last.

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
        rank = best.above + (best.tied + 1) / (best.positives + 1)
        return [tf.where(best.positives > 0, rank, best.num_items)]


@_registry.register("metric")
class MedianRank(MeanRank):
    r"""Median rank of the best positive, over lists and the random orders of tied items.

    The median is the middle of the ranks where the weighted distribution passes one half. A list
    whose best positive is tied is spread over the ranks that it may have. A positive whose score is
    NaN has the last rank. Batches and replicas add up a histogram.

    Source: the "median rank", MedR, of cross-modal retrieval.

    Args:
        max_rank: ranks above it are counted together; a median among them is reported as infinite.

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
        # The mass at the ranks 1, ..., max_rank, and at all ranks above them.
        self.histogram = ExactSum(self, "histogram", (self.max_rank + 1,))

    def _add_batch(self, labels: Any, sample_weight: Array | None) -> None:
        def group(best: BestPositive) -> list[Tensor]:
            above = tf.where(best.positives > 0, best.above, best.num_items - 1)
            return [above, best.tied, best.positives]

        dtype = self.histogram.dtype
        groups, weights = self._values_and_weights(labels, sample_weight, dtype, group)
        # A list whose labels break a rule is NaN: so is its mass, and the result.
        broken = has_nan(groups)
        weights = tf.where(broken, float("nan"), weights)
        groups = tf.where(broken[:, tf.newaxis], tf.zeros_like(groups), groups)
        above, tied, positives = tf.unstack(groups, axis=-1)
        # A list that does not count has a harmless rank.
        tied, positives = tf.maximum(tied, 1), tf.maximum(positives, 1)

        def scatter(rank: Tensor, mass: Tensor) -> Tensor:
            index = tf.cast(tf.minimum(rank, self.max_rank + 1), tf.int32) - 1
            return tf.math.unsorted_segment_sum(mass, index, self.max_rank + 1)

        # A single positive has equal mass at the ranks a + 1 to a + m: a running sum, to which the
        # first adds and from which the one after the last subtracts. The first digits of masses
        # add up without error, so that next to nothing is left over behind the last rank.
        mass = tf.where(positives <= 1, weights / tied, 0)
        highest = tf.reduce_max(tf.concat([mass, [0]], axis=0))
        parts = [mass] if dtype == tf.float64 else exact.split(mass, highest, 2 * tf.size(mass))
        starts_and_ends = [scatter(above + 1, x) - scatter(above + tied + 1, x) for x in parts]
        flat = tf.add_n([tf.cumsum(differences) for differences in starts_and_ends])
        beyond = tf.clip_by_value(above + tied - self.max_rank, 0, tied)
        flat = tf.concat([flat[:-1], [tf.reduce_sum(beyond * mass)]], axis=0)

        def add(total: Tensor, places: Tensor, probability: Tensor) -> Tensor:
            mass = weights[:, tf.newaxis] * probability
            return total + scatter(above[:, tf.newaxis] + places, mass)

        total = fold_places(add, flat, tied, positives, tied - positives + 1)
        self.histogram.add(total[tf.newaxis])

    def result(self) -> Tensor:
        """Returns the median; 0 if there was no list with a positive yet."""
        mass = self.histogram.totals()
        # The largest mass is 1, so that sums of any weights are finite.
        mass = tf.math.divide_no_nan(mass, tf.reduce_max(mass))
        sums = exact.running_sums(mass[tf.newaxis])[0]
        # Sums such as 1/3 + 1/3 + 1/3 that should be one half may miss it by rounding.
        total, slack = sums[-1], 1e-6 * sums[-1]
        lower = tf.math.count_nonzero(sums < total / 2 - slack, dtype=tf.int32)
        upper = tf.math.count_nonzero(sums <= total / 2 + slack, dtype=tf.int32)
        # The middle of the first rank that reaches half the mass and the first that exceeds it.
        median = tf.cast(lower + upper, mass.dtype) / 2 + 1
        median = tf.where(upper < self.max_rank, median, np.inf)
        median = tf.where(total > 0, median, 0)
        return tf.cast(tf.where(tf.math.is_nan(total), np.nan, median), self.dtype)
