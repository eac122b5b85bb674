"""Differences that TensorFlow would compute inexactly in a graph, and sums beyond float32.

Kinks of formulas go through `violation`; metrics add up with the sums. Dtypes of Python numbers are
here as well, since a number that passes through float32 loses digits.
"""

import tensorflow as tf

from rank4class_tf._types import Array, Tensor, TensorPair, WithGradient


def violation(difference: Tensor, margin: Tensor) -> Tensor:
    """`max(0, difference + margin)`, exact however far from 0 the difference is taken.

    TensorFlow rewrites `(score - level) + margin` in a graph as `score + (margin - level)`, which
    loses the margin where the level is large. It leaves a maximum where it is. The margin is > 0.
    """

    @tf.custom_gradient
    def violations(difference: Tensor) -> WithGradient:
        value = tf.maximum(difference, -margin) + margin
        return value, lambda upstream: tf.raw_ops.ReluGrad(gradients=upstream, features=value)

    return violations(tf.convert_to_tensor(difference))


def split(values: Tensor, highest: Tensor, count: Tensor) -> TensorPair:
    """The first digits of float32, so few that `count` add up without error; and the others."""
    # No number is farther from 0 than `highest`, which broadcasts. Source: Rump, Ogita & Oishi
    # 2008, "Accurate floating-point summation", whose idea this is.
    # All digits of a number beyond the limit, which keeps the unit finite, are the first ones.
    highest = tf.where(highest < float("inf"), tf.minimum(highest, 2.0**100), highest)
    # A power of two. The digits that are added are multiples of it, less than 2**24 times as large.
    unit = power_of_two(highest * tf.cast(count, tf.float32)) * 2.0**-22
    first = tf.round(values / unit) * unit
    return first, values - first


def power_of_two(values: Tensor) -> Tensor:
    """The highest power of two up to each number >= 0, float32, at least 2**-86."""
    # So a graph may take the factors of `split` in any order.
    bits = tf.bitcast(tf.cast(values, tf.float32), tf.int32)
    exponents = tf.bitwise.bitwise_and(bits, 0x7F800000)
    return tf.maximum(tf.bitcast(exponents, tf.float32), 2.0**-86)


def exact_sum(
    values: Tensor, groups: Array | None = None, num_groups: int | None = None
) -> TensorPair:
    """Sums of float32 `[batch, r]` in two parts, as of many more digits than float32 has."""
    # They are of all examples, `[r]`, or of groups, `[num_groups, r]`; an example whose group is
    # negative is in none. The second part is the smaller one. What is not finite makes a sum NaN.
    size, count = tf.abs(values), tf.shape(values)[0]
    if groups is None:
        highest = tf.maximum(tf.reduce_max(size, axis=0), 0)
        first, rest = split(values, highest, count)
        return tf.reduce_sum(first, axis=0), tf.reduce_sum(rest, axis=0)
    highest = tf.maximum(tf.math.unsorted_segment_max(size, groups, num_groups), 0)
    first, rest = split(values, tf.gather(highest, tf.maximum(groups, 0)), count)
    total = tf.math.unsorted_segment_sum(first, groups, num_groups)
    return total, tf.math.unsorted_segment_sum(rest, groups, num_groups)


def sum_of_rows(values: Tensor) -> Tensor:
    """Sums of `[batch, n]`, `[batch]`, as of more digits than float32 has."""
    if values.dtype == tf.float64:
        return tf.reduce_sum(values, axis=1)
    return tf.add(*exact_sum(tf.transpose(values)))


def running_sums(values: Tensor) -> Tensor:
    """Running sums of the numbers >= 0 of each row, `[batch, n]`; see `sum_of_rows`."""
    if values.dtype == tf.float64:
        return tf.cumsum(values, axis=1)
    highest = tf.reduce_max(values, axis=1, keepdims=True)
    first, rest = split(values, highest, tf.shape(values)[1])
    return tf.cumsum(first, axis=1) + tf.cumsum(rest, axis=1)


def two_sum(a: Tensor, b: Tensor) -> TensorPair:
    """`a + b`, rounded, and what rounding left out; neither may be a constant of a graph."""
    total = a + b
    rounded_b = total - a
    return total, (a - (total - rounded_b)) + (b - rounded_b)


def as_dtype(value: Array, dtype: tf.DType) -> Tensor:
    """A tensor of a dtype; unlike with `tf.cast`, a Python number does not pass through float32."""
    return tf.cast(tf.convert_to_tensor(value, dtype_hint=dtype), dtype)


def as_floating(values: Array) -> Tensor:
    """The values; integers become float32."""
    values = tf.convert_to_tensor(values)
    return values if values.dtype.is_floating else tf.cast(values, tf.float32)


def is_zero(number: Array) -> bool:
    """Whether it is the number 0; nobody knows of a tensor."""
    return isinstance(number, int | float) and number == 0


def divided(values: Tensor, number: Array) -> Tensor:
    """`values / number`, without the fourteen operations of it and its gradient where that is 1."""
    return values if isinstance(number, (int, float)) and number == 1 else values / number
