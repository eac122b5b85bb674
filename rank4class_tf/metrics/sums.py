"""Sums that metrics keep over batches and replicas."""

import tensorflow as tf
from tensorflow import keras

from rank4class_tf._tf.exact import two_sum
from rank4class_tf._types import Tensor


class RunningSums:
    """Sums over batches, to twice the digits of float32; a batch is summed plainly."""

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
        self._state = metric.add_weight(
            name=name,
            shape=shape if wide else (2, *shape),
            initializer="zeros",
            dtype=self.dtype.name,
        )

    def add(self, values: Tensor, groups: Tensor | None = None) -> None:
        """Adds up values `[batch, ...]` of this dtype, of all examples or by groups.

        An example whose group is negative is in none.
        """
        if groups is None:
            added = tf.reduce_sum(values, axis=0)
        else:
            added = tf.math.unsorted_segment_sum(values, groups, self._shape[0])

        if self.dtype == tf.float64:
            self._state.assign_add(added)
        else:
            total, rest = tf.unstack(tf.convert_to_tensor(self._state))
            total, lost = two_sum(total, added)
            self._state.assign(tf.stack([total, rest + lost]))

    def totals(self) -> Tensor:
        """The sums, rounded to this dtype."""
        state = tf.convert_to_tensor(self._state)
        return state if self.dtype == tf.float64 else tf.reduce_sum(state, axis=0)

    def means(self) -> Tensor:
        """The sums `[..., r]` over the last of them; 0 where that is."""
        totals = self.totals()
        return tf.math.divide_no_nan(totals[..., :-1], totals[..., -1:])
