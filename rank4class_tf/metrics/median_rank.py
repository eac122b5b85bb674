"""MedianRank."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _keras, ops
from rank4class_tf._types import TensorLike
from rank4class_tf.metrics._base import RankingMetric


@_keras.register
class MedianRank(RankingMetric):
    r"""Median rank of the best positive, over lists and the random orders of tied items.

    The state is a histogram of ranks, so that batches and replicas add up exactly. A list whose
    best positive ties is spread over the ranks that this positive may have; the median is the
    middle of the ranks where the weighted distribution passes one half. A positive whose score is
    NaN has the last rank.

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

    higher_is_better = False

    def __init__(self, max_rank: int = 2**16, **kwargs: Any) -> None:
        self.max_rank = _checks.positive_int("max_rank", max_rank)
        super().__init__(**kwargs)

    def _add_states(self):
        self.histogram = self.add_weight(
            name="histogram", shape=(self.max_rank + 1,), initializer="zeros", dtype="float64"
        )

    def compute(self, ranks: ops.Ranks) -> list[tf.Tensor]:
        """The expected rank of each list."""
        return [ops.rank_of_best(ranks)]

    def update_state(
        self,
        y_true: TensorLike,
        y_pred: TensorLike,
        sample_weight: TensorLike | None = None,
        exclude: TensorLike | None = None,
    ) -> None:
        """Adds a batch; the arguments are those of `per_list`."""

        def best_positive(ranks):
            above, tied, positives = ops.best_positive(ranks)
            hit = positives > 0
            above = tf.where(hit, above, ranks.num_items - 1)
            return [above, tf.maximum(tied, 1), tf.maximum(positives, 1)]

        groups, weights = self._measure(best_positive, y_true, y_pred, sample_weight, exclude)
        invalid = tf.reduce_any(tf.math.is_nan(groups), axis=-1)
        groups = tf.where(invalid[:, tf.newaxis], tf.zeros_like(groups), groups)
        weights = tf.where(invalid, tf.constant(float("nan"), tf.float64), weights)
        above, tied, positives = tf.unstack(groups, axis=-1)
        # A list that does not count has a harmless rank.
        tied, positives = tf.maximum(tied, 1), tf.maximum(positives, 1)
        self.histogram.assign_add(
            ops.rank_histogram(above, tied, positives, weights, self.max_rank)
        )

    def result(self) -> tf.Tensor:
        """Returns the median, 0 before any list with a positive."""
        cumulative = tf.cumsum(tf.convert_to_tensor(self.histogram))
        total = cumulative[-1]
        # Sums such as 1/3 + 1/3 + 1/3 that should be one half may miss it by rounding.
        slack = 1e-9 * total
        lower = tf.reduce_sum(tf.cast(cumulative < total / 2 - slack, tf.int32))
        upper = tf.reduce_sum(tf.cast(cumulative <= total / 2 + slack, tf.int32))
        median = tf.cast(lower + upper, tf.float64) / 2 + 1
        median = tf.where(upper < self.max_rank, median, tf.constant(np.inf, tf.float64))
        median = tf.where(total > 0, median, tf.zeros_like(median))
        median = tf.where(tf.math.is_nan(total), total, median)
        return tf.cast(median, self.dtype)
