"""Differences that TensorFlow would compute inexactly in a graph, and sums beyond float32."""

import tensorflow as tf

from rank4class_tf._types import TensorLike


def violation(difference: tf.Tensor, margin: TensorLike) -> tf.Tensor:
    """`max(0, difference + margin)`, exact however far from 0 the difference is taken.

    TensorFlow rewrites `(score - level) + margin` in a graph as `score + (margin - level)`, which
    loses the margin where the level is large. It leaves a maximum where it is.

    Args:
        difference: floating tensor.
        margin: > 0.
    """

    @tf.custom_gradient
    def violations(difference):
        value = tf.maximum(difference, -margin) + margin
        return value, lambda upstream: tf.raw_ops.ReluGrad(gradients=upstream, features=value)

    return violations(tf.convert_to_tensor(difference))


# Of numbers with so many binary digits 2**21 add up in 64.
_BITS = 40


def to_integers(values: tf.Tensor, unit: tf.Tensor) -> tf.Tensor:
    """Numbers in [-2, 2] times a power of two as int64, of which 2**21 add up without error.

    Args:
        values: float32 or float64.
        unit: the power of two, see `power_of_two`, of a shape that broadcasts.
    """
    return tf.cast(tf.round(values / tf.cast(unit, values.dtype) * 2.0**_BITS), tf.int64)


def from_integers(integers: tf.Tensor, unit: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
    """What `to_integers` made, or sums of it, in two parts: a rounded number and the rest."""

    def part(integers):
        return tf.cast(integers, dtype) * 2.0**-_BITS * tf.cast(unit, dtype)

    high = tf.cast(integers, dtype)
    return [part(integers), part(integers - tf.cast(high, tf.int64))]


def power_of_two(values: tf.Tensor) -> tf.Tensor:
    """The highest power of two up to each number >= 0, float32, at least 2**-86.

    So a graph may take the factors of `to_integers` in any order; TensorFlow does change it.
    """
    exponents = tf.bitwise.bitwise_and(_bits_of(tf.cast(values, tf.float32)), 0x7F800000)
    return tf.maximum(tf.bitcast(exponents, tf.float32), 2.0**-86)


def exact_sum(
    values: tf.Tensor, groups: tf.Tensor | None = None, num_groups: int | None = None
) -> list[tf.Tensor]:
    """Sums over the first axis in two parts, as of many more digits than float32 has.

    Args:
        values: `[batch, r]`, float32. One that is not finite makes the sum NaN.
        groups: `[batch]` integers, negative for none; None for one sum over all.
        num_groups: how many groups there are.

    Returns:
        The sums `[r]` or `[num_groups, r]`, rounded; and what rounding left out.
    """
    finite = tf.math.is_finite(values)
    broken = tf.where(finite, tf.zeros_like(values), tf.constant(float("nan"), values.dtype))
    values = tf.where(finite, values, tf.zeros_like(values))
    room = tf.maximum(power_of_two(tf.shape(values)[0] // 2**20), 1)
    if groups is None:
        unit = power_of_two(tf.maximum(tf.reduce_max(tf.abs(values), axis=0), 0)) * room
        total = tf.reduce_sum(to_integers(values, unit), axis=0)
        broken = tf.reduce_sum(broken, axis=0)
    else:
        highest = tf.math.unsorted_segment_max(tf.abs(values), groups, num_groups)
        unit = power_of_two(tf.maximum(highest, 0)) * room
        integers = to_integers(values, tf.gather(unit, tf.maximum(groups, 0)))
        total = tf.math.unsorted_segment_sum(integers, groups, num_groups)
        broken = tf.math.unsorted_segment_sum(broken, groups, num_groups)
    high, low = from_integers(total, unit, values.dtype)
    return [high + broken, low]


def sum_of_rows(values: tf.Tensor) -> tf.Tensor:
    """Sums of `[batch, n]`, `[batch]`, of float32 rounded once."""
    if values.dtype == tf.float64:
        return tf.reduce_sum(values, axis=1)
    return exact_sum(tf.transpose(values))[0]


def running_sums(values: tf.Tensor) -> tf.Tensor:
    """The sums of the first numbers >= 0 of each row, `[batch, n]`, of float32 rounded once."""
    if values.dtype == tf.float64:
        return tf.cumsum(values, axis=1)
    room = tf.maximum(power_of_two(tf.shape(values)[1] // 2**20), 1)
    unit = power_of_two(tf.reduce_max(values, axis=1, keepdims=True)) * room
    return from_integers(tf.cumsum(to_integers(values, unit), axis=1), unit, values.dtype)[0]


def two_sum(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`a + b`, rounded, and what rounding left out; neither may be a constant of a graph."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def halves(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The first 12 binary digits of float32, and the others; products of halves are exact."""
    bits = tf.bitwise.bitwise_and(_bits_of(values), -(1 << 12))
    high = tf.bitcast(bits, tf.float32)
    return high, values - high


def _bits_of(values):
    return tf.bitcast(values, tf.int32)
