"""Binomial coefficients in logarithms."""

import tensorflow as tf


def log_binomial(n: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    """`log C(n, k)` of floating tensors; -inf unless 0 <= k <= n."""
    n, k = tf.convert_to_tensor(n), tf.convert_to_tensor(k)
    possible = (k >= 0) & (k <= n)
    inside = tf.where(possible, k, tf.zeros_like(k))
    value = tf.math.lgamma(n + 1) - tf.math.lgamma(inside + 1) - tf.math.lgamma(n - inside + 1)
    return tf.where(possible, value, tf.constant(-float("inf"), value.dtype))
