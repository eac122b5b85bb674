"""Numbers as tensors of a dtype."""

import tensorflow as tf

from rank4class_tf._types import TensorLike


def as_dtype(value: TensorLike, dtype: tf.DType) -> tf.Tensor:
    """A tensor of a dtype; unlike with `tf.cast`, a Python number does not pass through float32."""
    return tf.cast(tf.convert_to_tensor(value, dtype_hint=dtype), dtype)


def as_floating(values: TensorLike) -> tf.Tensor:
    """The values; integers become float32."""
    values = tf.convert_to_tensor(values)
    return values if values.dtype.is_floating else tf.cast(values, tf.float32)


def divided(values: tf.Tensor, number: TensorLike) -> tf.Tensor:
    """`values / number`, without the fourteen operations of it and its gradient where that is 1."""
    return values if isinstance(number, (int, float)) and number == 1 else values / number
