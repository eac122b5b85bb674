"""Sums over millions of examples, on devices that have no float64."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf._tf import exact


class ExactSum:
    """Sums that a metric keeps, to more digits than float32 has.

    They are three float32 of 12, 12 and 24 binary digits. The first two of some thousand replicas
    add up without error, so that a strategy may sum each by itself. A metric of dtype float64 has
    one float64, and so has one under a parameter server, where only `assign_add` loses no update.

    Args:
        metric: that of which it is a state, with a dtype.
        name: of the state.
        shape: of the sums.
    """

    def __init__(self, metric: keras.metrics.Metric, name: str, shape: tuple[int, ...]) -> None:
        shared = tf.distribute.experimental.ParameterServerStrategy
        wide = tf.as_dtype(metric.dtype) == tf.float64
        wide |= isinstance(tf.distribute.get_strategy(), shared)
        self.dtype = tf.float64 if wide else tf.float32
        self._shape = shape
        self._state: Any = metric.add_weight(
            name=name,
            shape=shape if wide else (3, *shape),
            initializer="zeros",
            dtype=self.dtype.name,
        )

    def add(self, values: tf.Tensor, groups: tf.Tensor | None = None) -> None:
        """Adds up values `[batch, ...]` of this dtype; see `exact.exact_sum`."""
        if self.dtype == tf.float32:
            num_groups = None if groups is None else self._shape[0]
            self.add_parts(*exact.exact_sum(values, groups, num_groups))
        elif groups is None:
            self._state.assign_add(tf.reduce_sum(values, axis=0))
        else:
            self._state.assign_add(tf.math.unsorted_segment_sum(values, groups, self._shape[0]))

    def add_parts(self, high: tf.Tensor, low: tf.Tensor) -> None:
        """Adds a sum in two parts of this dtype."""
        if self.dtype == tf.float64:
            self._state.assign_add(high + low)
        else:
            first, second, rest = tf.unstack(tf.convert_to_tensor(self._state))
            total, lost = exact.two_sum(first, high)
            total, lost_too = exact.two_sum(total, second)
            total, rest = exact.two_sum(total, (lost + lost_too) + (rest + low))
            self._state.assign(tf.stack([*exact.halves(total), rest]))

    def parts(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The sums, rounded to this dtype, and what rounding left out."""
        state = tf.convert_to_tensor(self._state)
        if self.dtype == tf.float64:
            return state, tf.zeros_like(state)
        first, second, rest = tf.unstack(state)
        total, lost = exact.two_sum(first, second)
        return exact.two_sum(total, lost + rest)

    def means(self) -> tf.Tensor:
        """The sums `[..., r]` over the last of them, rounded once; 0 where that is."""
        total, rest = self.parts()
        weight = total[..., -1:]
        means = tf.math.divide_no_nan(total[..., :-1], weight)
        if self.dtype == tf.float64:
            return means
        # What is left of the dividend, by products of halves, which are exact.
        (m1, m2), (w1, w2) = exact.halves(means), exact.halves(weight)
        left = ((total[..., :-1] - m1 * w1) - (m1 * w2 + m2 * w1)) - m2 * w2
        left += rest[..., :-1] - means * rest[..., -1:]
        return means + tf.math.divide_no_nan(left, weight)
