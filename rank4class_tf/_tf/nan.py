"""NaN that must not be lost."""

import functools

import tensorflow as tf

from rank4class_tf._tf.where import where


def keep_nan(losses: tf.Tensor, *scores: tf.Tensor) -> tf.Tensor:
    """Losses `[batch]`, NaN, with their gradient, where a list has a NaN among its scores."""
    has_nan = [tf.reduce_any(tf.math.is_nan(row), axis=-1) for row in scores]
    clean = ~functools.reduce(tf.logical_or, has_nan)
    factor = where(clean, tf.ones_like(losses), float("nan"))
    # One operation in the gradient too, unlike a product of two shapes that only run time knows.
    return tf.custom_gradient(lambda x: (x * factor, lambda upstream: upstream * factor))(losses)
