"""MedianRank."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._tf import exact
from rank4class_tf.metrics._base import RankingMetric
from rank4class_tf.metrics._best_positive import best_positive, fold_places, rank_of_best
from rank4class_tf.metrics._exact_sum import ExactSum


@_registry.register("metric")
class MedianRank(RankingMetric):
    r"""Median rank of the best positive, over lists and the random orders of tied items.

    The state is a histogram of ranks, so that batches and replicas add up exactly. If the best
    positive of a list is tied, the list is spread over the ranks that this positive may have. The
    median is the middle of the ranks where the weighted distribution passes one half. A positive
    whose score is NaN has the last rank.

    Source: the "median rank", MedR, of cross-modal retrieval.

    Args:
        max_rank: ranks above it are counted together; a median among them is reported as infinite.
        **kwargs: `label_format`, `name`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `max_rank` is not a positive integer.

    Example:
        >>> metric = MedianRank()
        >>> metric.update_state([0, 1, 2], [[1.0, 2.0, 0.0]] * 3)  # ranks 2, 1 and 3
        >>> float(metric.result())
        2.0
    """

    _reads = "best"
    higher_is_better = False
    is_mean = False

    def __init__(self, max_rank: int = 2**16, **kwargs: Any) -> None:
        self.max_rank = _checks.positive_int("max_rank", max_rank)
        super().__init__(**kwargs)

    def _add_states(self):
        self.histogram = ExactSum(self, "histogram", (self.max_rank + 1,))

    def compute(self, ranks: ops.Ranks) -> list[tf.Tensor]:
        """The expected rank of each list."""
        return [rank_of_best(ranks)]

    def _add_batch(self, *batch):
        def group(ranks):
            above, tied, positives = best_positive(ranks)
            hit = positives > 0
            above = tf.where(hit, above, ranks.num_items - 1)
            return [above, tf.maximum(tied, 1), tf.maximum(positives, 1)]

        dtype = self.histogram.dtype
        groups, weights = self._values_and_weights(dtype, *batch, compute=group)
        invalid = tf.reduce_any(tf.math.is_nan(groups), axis=-1) | ~tf.math.is_finite(weights)
        groups = tf.where(invalid[:, tf.newaxis], tf.zeros_like(groups), groups)
        weights = tf.where(invalid, tf.zeros_like(weights), weights)
        above, tied, positives = tf.unstack(groups, axis=-1)
        # A list that does not count has a harmless rank.
        tied, positives = tf.maximum(tied, 1), tf.maximum(positives, 1)
        integers, unit = _integer_histogram(above, tied, positives, weights, self.max_rank)
        high, low = exact.from_integers(integers, unit, dtype)
        nan = tf.constant(float("nan"), dtype)
        high = tf.where(tf.reduce_any(invalid), nan, high)
        self.histogram.add_parts(high, low)

    def result(self) -> tf.Tensor:
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
        median = tf.cast(lower + upper, high.dtype) / 2 + 1
        median = tf.where(upper < self.max_rank, median, tf.constant(np.inf, high.dtype))
        median = tf.where(total > 0, median, tf.zeros_like(median))
        broken = tf.reduce_any(tf.math.is_nan(high))
        median = tf.where(broken, tf.constant(np.nan, high.dtype), median)
        return tf.cast(median, self.dtype)


def _integer_histogram(above, tied, positives, weights, max_rank):
    """Distribution of the rank of the best positive, summed over lists.

    Args:
        above: `[batch]`, the items above the best positive.
        tied: `[batch]`, the items tied with it, itself included, >= 1.
        positives: `[batch]`, the positives among these, >= 1; see `best_positive`.
        weights: `[batch]`, the mass of each list, finite.
        max_rank: positive integer; higher ranks are counted together.

    Returns:
        `[max_rank + 1]` integers, the mass at the ranks `1, ..., max_rank` and above, and their
        unit; see `exact.to_integers`. The mass of a list whose best positives tie is spread over
        their possible ranks.
    """
    single = positives <= 1
    unit = exact.power_of_two(tf.reduce_max(tf.concat([weights, [0]], axis=0)))

    def scatter(rank, mass):
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

    def add(total, place, probability):
        mass = tf.where(single, tf.zeros_like(weights), weights)[:, tf.newaxis] * probability
        return total + scatter(above[:, tf.newaxis] + place, exact.to_integers(mass, unit))

    return fold_places(add, flat, tied, positives, tied - positives + 1), unit
