"""Gumbel noise."""

import tensorflow as tf

from rank4class_tf._types import TensorLike
from rank4class_tf.ops.sampling import random


def gumbel_noise(shape: TensorLike, seed: TensorLike, dtype: tf.DType = tf.float32) -> tf.Tensor:
    r"""Independent draws of the standard Gumbel distribution, $-\log(-\log U)$.

    Args:
        shape: of the result.
        seed: two integers.
        dtype: floating type.

    Returns:
        A tensor of finite values; their mean is Euler's constant, 0.577, their variance π² / 6.

    Example:
        >>> round(float(tf.reduce_mean(gumbel_noise([10_000], seed=[1, 2]))), 1)
        0.6
    """
    dtype = tf.as_dtype(dtype)
    # In half precision draws would round to 0 and 1.
    draws = random.uniform(shape, seed, dtype if dtype.size > 2 else tf.float32)
    return tf.cast(-tf.math.log(-tf.math.log(draws)), dtype)
