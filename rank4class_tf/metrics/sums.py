"""Sums that metrics keep over batches and replicas."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf._tf import exact
from rank4class_tf._types import Tensor, TensorPair


class ExactSum:
    """Sums that a metric keeps, to more digits than float32 has.

    They are three float32 of 12, 12 and 24 binary digits. The first two of some thousand replicas
    add up without error, so that a strategy may sum each separately. A metric of dtype float64 has
    one float64, and so has one under a parameter server, where only `assign_add` loses no update.
    """

    def __init__(self, metric: keras.metrics.Metric, name: str, shape: tuple[int, ...]):
        # Float32 by default: not all devices have float64.
        shared = tf.distribute.experimental.ParameterServerStrategy
        wide = tf.as_dtype(metric.dtype) == tf.float64
        wide |= isinstance(tf.distribute.get_strategy(), shared)
        self.dtype = tf.float64 if wide else tf.float32
        self._shape = shape
        options = {"shape": shape if wide else (3, *shape), "dtype": self.dtype.name}
        self._state: Any = metric.add_weight(name=name, initializer="zeros", **options)

    def add(self, values: Tensor, groups: Tensor | None = None) -> None:
        """Adds up values `[batch, ...]` of this dtype; see `exact.exact_sum`."""
        if self.dtype == tf.float32 and groups is None:
            self._state.assign(_with_values(tf.convert_to_tensor(self._state), values))
        elif self.dtype == tf.float32:
            parts = exact.exact_sum(values, groups, self._shape[0])
            self._state.assign(_with_parts(tf.convert_to_tensor(self._state), *parts))
        elif groups is None:
            self._state.assign_add(tf.reduce_sum(values, axis=0))
        else:
            self._state.assign_add(tf.math.unsorted_segment_sum(values, groups, self._shape[0]))

    def parts(self) -> TensorPair:
        """The sums, rounded to this dtype, and what rounding left out."""
        state = tf.convert_to_tensor(self._state)
        if self.dtype == tf.float64:
            return state, tf.zeros_like(state)
        return _parts(state)

    def means(self) -> Tensor:
        """The sums `[..., r]` over the last of them, rounded once; 0 where that is."""
        state = tf.convert_to_tensor(self._state)
        if self.dtype == tf.float64:
            return tf.math.divide_no_nan(state[..., :-1], state[..., -1:])
        return tf.ensure_shape(_means(state), [*self._shape[:-1], self._shape[-1] - 1])


def _parts(state: Tensor) -> TensorPair:
    # Replicas add up each part separately, so the first two may overlap after a sum.
    first, second, rest = tf.unstack(state, num=3)
    total, lost = exact.two_sum(first, second)
    return exact.two_sum(total, lost + rest)


def _with_parts(state: Tensor, high: Tensor, low: Tensor) -> Tensor:
    first, second, rest = tf.unstack(state, num=3)
    # Every addition keeps what rounding left out (Knuth's two-sum); `rest` collects it.
    total, lost = exact.two_sum(first, high)
    total, lost_too = exact.two_sum(total, second)
    total, rest = exact.two_sum(total, (lost + lost_too) + (rest + low))
    return tf.stack([*exact.halves(total), rest])


def _once(*ranks: int | None) -> Callable:
    # The graph is made once in a process, for tensors of these ranks: `fit` makes the graph of a
    # step twice, and two thirds of the operations of its metrics were these.
    specs = [tf.TensorSpec(None if r is None else [None] * r, tf.float32) for r in ranks]
    return functools.partial(tf.function, input_signature=specs, autograph=False)


# The state `[3, r]` of sums and values `[batch, r]` -> the new state.
@_once(2, 2)
def _with_values(state: Tensor, values: Tensor) -> Tensor:
    return _with_parts(state, *exact.exact_sum(values))


@_once(None)
def _means(state: Tensor) -> Tensor:
    total, rest = _parts(state)
    weight = total[..., -1:]
    means = tf.math.divide_no_nan(total[..., :-1], weight)
    # What is left of the dividend, by products of halves, which are exact.
    (m1, m2), (w1, w2) = exact.halves(means), exact.halves(weight)
    left = ((total[..., :-1] - m1 * w1) - (m1 * w2 + m2 * w1)) - m2 * w2
    left += rest[..., :-1] - means * rest[..., -1:]
    return means + tf.math.divide_no_nan(left, weight)
