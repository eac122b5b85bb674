"""Differences and sums that keep digits which float32, or a graph, would lose.

Formulas with a kink use `violation`; sums over many batches use `two_sum`. Casts of
Python numbers are here too: a number that passes through float32 loses digits.
"""

import tensorflow as tf

from rank4class_tf._types import Array, Tensor, TensorPair, WithGradient


def violation(difference: Tensor, margin: Tensor) -> Tensor:
    """`max(0, difference + margin)`, exact also for the difference of large numbers.

    TensorFlow rewrites `(score - level) + margin` in a graph as
    `score + (margin - level)`, which loses the margin where the level is large. It does
    not move a maximum. The margin is > 0.
    """

    @tf.custom_gradient
    def violations(difference: Tensor) -> WithGradient:
        value = tf.maximum(difference, -margin) + margin
        return value, lambda upstream: tf.raw_ops.ReluGrad(
            gradients=upstream, features=value
        )

    return violations(tf.convert_to_tensor(difference))


def power_of_two(values: Tensor) -> Tensor:
    """The highest power of two up to each number >= 0, float32, at least 2**-86."""
    # Dividing by these is exact.
    bits = tf.bitcast(tf.cast(values, tf.float32), tf.int32)
    exponents = tf.bitwise.bitwise_and(bits, 0x7F800000)
    return tf.maximum(tf.bitcast(exponents, tf.float32), 2.0**-86)


def two_sum(a: Tensor, b: Tensor) -> TensorPair:
    """`a + b`, rounded, and what rounding left out; neither may be a graph constant."""
    total = a + b
    rounded_b = total - a
    return total, (a - (total - rounded_b)) + (b - rounded_b)


def as_dtype(value: Array, dtype: tf.DType) -> Tensor:
    """A tensor of a dtype; unlike with `tf.cast`, a Python number skips float32."""
    return tf.cast(tf.convert_to_tensor(value, dtype_hint=dtype), dtype)


def as_floating(values: Array) -> Tensor:
    """The values; integers become float32."""
    values = tf.convert_to_tensor(values)
    return values if values.dtype.is_floating else tf.cast(values, tf.float32)


def is_zero(number: Array) -> bool:
    """Whether this is Python's number 0; False for a tensor, whose value is unknown."""
    return isinstance(number, int | float) and number == 0


def divided(values: Tensor, number: Array) -> Tensor:
    """`values / number`; for 1, saves fourteen operations, including the gradient's."""
    is_one = isinstance(number, int | float) and number == 1
    return values if is_one else values / number
