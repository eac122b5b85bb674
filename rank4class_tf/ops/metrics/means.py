"""Means over the positives of a list."""

import tensorflow as tf

from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._tf.where import where
from rank4class_tf._types import TensorLike


def ranks_and_relevance(ranks: TensorLike, relevance: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
    """Both as tensors, `[batch, P]`; raises unless their shapes are the same."""
    ranks, relevance = tf.convert_to_tensor(ranks), tf.convert_to_tensor(relevance)
    rule = "`relevance` must have the shape of `ranks`."
    return ranks, same_sizes(relevance, ranks, rule, axes=2)


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Mean of values `[batch, P]`, `[batch]`; 0 where the weights, >= 0, are."""
    if values.shape[1] == 1:
        return tf.squeeze(where(weights > 0, values, weights), axis=1)  # A NaN stays one.
    weights = tf.cast(weights, values.dtype)
    total = tf.reduce_sum(weights * values, axis=-1)
    return tf.math.divide_no_nan(total, tf.reduce_sum(weights, axis=-1))
