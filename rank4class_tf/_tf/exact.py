"""Differences TensorFlow would compute inexactly in a graph, and sums beyond float32.

Formulas with a kink use `violation`; metrics use the sums. Casts of Python numbers are
here too, since a number that passes through float32 loses digits.
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


def split(values: Tensor, highest: Tensor, count: Tensor) -> TensorPair:
    """Splits float32 into leading digits, of which `count` add exactly, and a rest."""
    # No number is farther from 0 than `highest`, which broadcasts. Source: Rump, Ogita
    # & Oishi 2008, "Accurate floating-point summation", whose idea this is. This limit
    # keeps the unit finite: all digits of a larger number are leading ones.
    highest = tf.where(highest < float("inf"), tf.minimum(highest, 2.0**100), highest)
    # A power of two. Sums of leading digits are multiples of it, less than 2**24 times
    # as large.
    unit = power_of_two(highest * tf.cast(count, tf.float32)) * 2.0**-22
    leading = tf.round(values / unit) * unit
    return leading, values - leading


def power_of_two(values: Tensor) -> Tensor:
    """The highest power of two up to each number >= 0, float32, at least 2**-86."""
    # Multiplying by these is exact, so a graph may reorder the factors in `split`.
    bits = tf.bitcast(tf.cast(values, tf.float32), tf.int32)
    exponents = tf.bitwise.bitwise_and(bits, 0x7F800000)
    return tf.maximum(tf.bitcast(exponents, tf.float32), 2.0**-86)


def exact_sum(
    values: Tensor, groups: Array | None = None, num_groups: int | None = None
) -> TensorPair:
    """Sums of float32 `[batch, r]` in two parts, with many more digits than float32."""
    # Sums are of all examples, `[r]`, or of groups, `[num_groups, r]`; an example whose
    # group is negative is in none. The second part is the smaller one. What is not
    # finite makes a sum NaN.
    magnitudes, count = tf.abs(values), tf.shape(values)[0]
    if groups is None:
        highest = tf.maximum(tf.reduce_max(magnitudes, axis=0), 0)
        leading, rest = split(values, highest, count)
        return tf.reduce_sum(leading, axis=0), tf.reduce_sum(rest, axis=0)
    highest = tf.maximum(
        tf.math.unsorted_segment_max(magnitudes, groups, num_groups), 0
    )
    leading, rest = split(values, tf.gather(highest, tf.maximum(groups, 0)), count)
    total = tf.math.unsorted_segment_sum(leading, groups, num_groups)
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
    leading, rest = split(values, highest, tf.shape(values)[1])
    return tf.cumsum(leading, axis=1) + tf.cumsum(rest, axis=1)


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
    return (
        values if isinstance(number, (int, float)) and number == 1 else values / number
    )
