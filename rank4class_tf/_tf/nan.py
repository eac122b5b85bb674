"""NaN that must not be lost."""

import functools

import tensorflow as tf

from rank4class_tf._tf.where import where


def has_nan(rows: tf.Tensor) -> tf.Tensor:
    """`[batch]` booleans, True where one of the numbers of a row is NaN."""
    return tf.reduce_any(tf.math.is_nan(rows), axis=-1)


def keep_nan(losses: tf.Tensor, *scores: tf.Tensor) -> tf.Tensor:
    """Losses `[batch]`, NaN, with their gradient, where a list has a NaN among its scores."""
    clean = ~functools.reduce(tf.logical_or, map(has_nan, scores))
    factor = where(clean, tf.ones_like(losses), float("nan"))
    # One operation in the gradient too, unlike a product of two shapes that only run time knows.
    return tf.custom_gradient(lambda x: (x * factor, lambda upstream: upstream * factor))(losses)
