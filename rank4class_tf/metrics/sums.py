"""Sums that metrics keep over batches and replicas."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf._tf import exact
from rank4class_tf._types import Tensor


class ExactSum:
    """Sums that a metric keeps, to twice the digits of float32."""

    def __init__(self, metric: keras.metrics.Metric, name: str, shape: tuple[int, ...]):
        # Not all devices have float64. So a sum is two float32, the sum and what
        # rounding has left out of it, and strategies add up both over replicas. A
        # metric of dtype float64 has one float64, and so has one under a parameter
        # server, where only `assign_add` loses no update.
        shared = tf.distribute.experimental.ParameterServerStrategy
        wide = tf.as_dtype(metric.dtype) == tf.float64
        wide |= isinstance(tf.distribute.get_strategy(), shared)
        self.dtype = tf.float64 if wide else tf.float32
        self._shape = shape
        options = {"shape": shape if wide else (2, *shape), "dtype": self.dtype.name}
        self._state: Any = metric.add_weight(name=name, initializer="zeros", **options)

    def add(self, values: Tensor, groups: Tensor | None = None) -> None:
        """Adds up values `[batch, ...]` of this dtype; see `exact.exact_sum`."""
        if self.dtype == tf.float32:
            state = tf.convert_to_tensor(self._state)
            if groups is None:
                self._state.assign(_with_values(state, values))
            else:
                self._state.assign(
                    _added(state, *exact.exact_sum(values, groups, self._shape[0]))
                )
        elif groups is None:
            self._state.assign_add(tf.reduce_sum(values, axis=0))
        else:
            self._state.assign_add(
                tf.math.unsorted_segment_sum(values, groups, self._shape[0])
            )

    def totals(self) -> Tensor:
        """The sums, rounded to this dtype."""
        state = tf.convert_to_tensor(self._state)
        return state if self.dtype == tf.float64 else tf.reduce_sum(state, axis=0)

    def means(self) -> Tensor:
        """The sums `[..., r]` over the last of them; 0 where that is."""
        totals = self.totals()
        totals, weights = tf.split(totals, [totals.shape[-1] - 1, 1], axis=-1)
        return tf.math.divide_no_nan(totals, weights)


def _added(state: Tensor, high: Tensor, low: Tensor) -> Tensor:
    total, rest = tf.unstack(state, num=2)
    total, lost = exact.two_sum(total, high)
    return tf.stack([total, rest + (lost + low)])


# `fit` makes the graph of a step twice, and two thirds of the operations of its metrics
# are these. So they are a graph of their own, which is made once in a process.
_SPECS = [tf.TensorSpec([2, None], tf.float32), tf.TensorSpec([None, None], tf.float32)]


@tf.function(input_signature=_SPECS, autograph=False)
def _with_values(state: Tensor, values: Tensor) -> Tensor:
    return _added(state, *exact.exact_sum(values))
