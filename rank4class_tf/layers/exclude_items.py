"""ExcludeItems."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf._lists.labels import excluded_items
from rank4class_tf._tf.dtypes import as_floating


@_keras.register
class ExcludeItems(keras.layers.Layer):
    """Sets the score of some items to -inf, such as those that a user has already seen.

    Put it at the end of a model that is evaluated or served. Do not train with it: the loss of an
    excluded positive is undefined. A metric ranks -inf last.

    Args:
        **kwargs: arguments of `keras.layers.Layer`. `dtype` is float32 unless given.

    Input: scores `[batch, n]`, and item ids `[batch, E]`, padded with -1, or booleans `[batch, n]`,
    True for an item to exclude.

    Output: scores `[batch, n]`.

    Raises:
        ValueError: if an item does not exist. Under XLA, which cannot raise errors, the scores of
            the list become NaN instead.

    Example:
        >>> ExcludeItems()([tf.constant([[3.0, 1.0, 2.0]]), tf.constant([[0, -1]])]).numpy()
        array([[-inf,   1.,   2.]], dtype=float32)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "float32", **kwargs})

    def call(self, inputs: Any) -> tf.Tensor:
        """Scores and items -> scores."""
        scores, exclude = inputs
        scores = as_floating(scores)
        mask, invalid = excluded_items(exclude, scores)
        scores = tf.where(mask, tf.constant(-float("inf"), scores.dtype), scores)
        return tf.where(invalid[:, tf.newaxis], tf.constant(float("nan"), scores.dtype), scores)
