"""Metrics of the best positive's rank: MRR, mean and median rank.

The formulas read `BestPositive`, the group of tied items that holds it: with a items above and m in
the group, q of them positive, the rank of the best is a + j with the probability that `fold_places`
computes. The median keeps a histogram in integers, so that sums are exact.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._tf import exact
from rank4class_tf._tf.gradients import has_nan
from rank4class_tf._types import Array, Tensor, TensorPair
from rank4class_tf.metrics.base import CutoffMetric, ReadsBestPositive
from rank4class_tf.metrics.sums import ExactSum
from rank4class_tf.ops.ranks import BestPositive, mean_over_ties, num_counted, reciprocals

# Where several positives tie, the ranks of the tied items are summed in blocks of this many. Blocks
# of 2,048 take four times as long for 64 lists of 100 tied items, .75 of the time for 20,000.
_PLACES = 128


def rank_of_best(best: BestPositive) -> Tensor:
    """Expected rank of the best positive, `[batch]`, n if its score is NaN; see `MeanRank`."""
    rank = best.above + (best.tied + 1) / (best.positives + 1)
    return tf.where(best.positives > 0, rank, best.num_items)


def fold_places(add: Callable, start: Any, tied: Tensor, positives: Tensor, last: Tensor) -> Any:
    """Folds the places of the first of several positives among tied items.

    `add` maps a total, places `[places]` from 1 on and their probabilities `[batch, places]` to the
    new total. A list with fewer than two positives adds nothing. `last` is the last that counts.
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

    start = (
        tf.zeros([], tied.dtype),
        tf.ones_like(tied + tf.zeros([_PLACES], tied.dtype)),
        start,
    )
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
        single = mean_over_ties(reciprocals(size), best.above, best.tied)
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
    them positive, its rank is $a + (m + 1) / (q + 1)$.
    A positive whose score is NaN has the last rank.

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
        return [rank_of_best(best)]


@_registry.register("metric")
class MedianRank(ReadsBestPositive):
    r"""Median rank of the best positive, over lists and the random orders of tied items.

    The median is the middle of the ranks where the weighted distribution passes one half. If the
    best positive of a list is tied, the list is spread over the ranks that it may have. A positive
    whose score is NaN has the last rank. A histogram is kept, which batches and replicas add up
    exactly.

    Source: the "median rank", MedR, of cross-modal retrieval.

    Args:
        max_rank: ranks above it are counted together; a median among them is reported as infinite.

    Example:
        >>> metric = MedianRank()
        >>> metric.update_state([0, 1, 2], [[1.0, 2.0, 0.0]] * 3)  # ranks 2, 1 and 3
        >>> float(metric.result())
        2.0
    """

    higher_is_better = False

    def __init__(self, max_rank: int = 2**16, **kwargs: Any):
        self.max_rank = _checks.positive_int("max_rank", max_rank)
        super().__init__(**kwargs)

    def _add_states(self) -> None:
        self.histogram = ExactSum(self, "histogram", (self.max_rank + 1,))

    def compute(self, best: BestPositive) -> list[Tensor]:
        return [rank_of_best(best)]

    def _add_batch(self, labels: Any, sample_weight: Array | None) -> None:
        def group(best: BestPositive) -> list[Tensor]:
            hit = best.positives > 0
            above = tf.where(hit, best.above, best.num_items - 1)
            return [above, tf.maximum(best.tied, 1), tf.maximum(best.positives, 1)]

        dtype = self.histogram.dtype
        groups, weights = self._values_and_weights(labels, sample_weight, dtype, group)
        broken = has_nan(groups) | ~tf.math.is_finite(weights)
        groups = tf.where(broken[:, tf.newaxis], tf.zeros_like(groups), groups)
        weights = tf.where(broken, tf.zeros_like(weights), weights)
        above, tied, positives = tf.unstack(groups, axis=-1)
        # A list that does not count has a harmless rank.
        tied, positives = tf.maximum(tied, 1), tf.maximum(positives, 1)
        integers, unit = _integer_histogram(above, tied, positives, weights, self.max_rank)
        high, low = exact.from_integers(integers, unit, dtype)
        self.histogram.add_parts(tf.where(~tf.reduce_any(broken), high, np.nan), low)

    def result(self) -> Tensor:
        """Returns the median; 0 if there was no list with a positive yet."""
        high, low = self.histogram.parts()
        known = tf.where(tf.math.is_nan(high), tf.zeros_like(high), high)
        # A place has up to 2**41 units, all together up to 2**61.
        largest = tf.maximum(tf.reduce_max(known), tf.reduce_sum(known / 2**20))
        unit = exact.power_of_two(largest)
        integers = exact.to_integers(known, unit) + exact.to_integers(low, unit)
        twice = 2 * tf.cumsum(integers)
        total = twice[-1] // 2
        # Sums such as 1/3 + 1/3 + 1/3 that should be one half may miss it by rounding.
        slack = total // 10**7
        lower = tf.reduce_sum(tf.cast(twice < total - slack, tf.int32))
        upper = tf.reduce_sum(tf.cast(twice <= total + slack, tf.int32))
        # The middle of the first rank that reaches half the mass and the first that exceeds it.
        median = tf.cast(lower + upper, high.dtype) / 2 + 1
        median = tf.where(upper < self.max_rank, median, np.inf)
        median = tf.where(total > 0, median, 0)
        broken = tf.reduce_any(tf.math.is_nan(high))
        return tf.cast(tf.where(~broken, median, np.nan), self.dtype)


def _integer_histogram(
    above: Tensor, tied: Tensor, positives: Tensor, weights: Tensor, max_rank: int
) -> TensorPair:
    """Distribution of the rank of the best positive, summed over lists."""
    # It is `[max_rank + 1]` integers, the mass at the ranks `1, ..., max_rank` and above, and their
    # unit; see `exact.to_integers`. `tied` and `positives` are >= 1, and weights finite.
    single = positives <= 1
    unit = exact.power_of_two(tf.reduce_max(tf.concat([weights, [0]], axis=0)))

    def scatter(rank: Tensor, mass: Tensor) -> Tensor:
        index = tf.cast(tf.minimum(rank, max_rank + 1), tf.int32) - 1
        return tf.math.unsorted_segment_sum(mass, index, max_rank + 1)

    # A list has equal mass at the ranks a + 1 to a + m: it begins at the first and ends after the
    # last. In integers the difference leaves nothing over.
    width = tf.cast(tied, tf.int64)
    mass = exact.to_integers(tf.where(single, weights, tf.zeros_like(weights)), unit) // width
    end = above + tied + 1
    ends = tf.where(end <= max_rank + 1, mass, tf.zeros_like(mass))
    flat = tf.cumsum(scatter(above + 1, mass) - scatter(end, ends))[:-1]
    beyond = tf.cast(tf.clip_by_value(above + tied - max_rank, 0, tied), tf.int64)
    flat = tf.concat([flat, [tf.reduce_sum(beyond * mass)]], axis=0)

    def add(total: Tensor, places: Tensor, probability: Tensor) -> Tensor:
        mass = tf.where(single, tf.zeros_like(weights), weights)[:, tf.newaxis] * probability
        return total + scatter(above[:, tf.newaxis] + places, exact.to_integers(mass, unit))

    return fold_places(add, flat, tied, positives, tied - positives + 1), unit
