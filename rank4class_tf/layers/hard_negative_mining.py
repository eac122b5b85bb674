"""HardNegativeMining."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._tf import top as _top
from rank4class_tf._tf.gather import gather, indices
from rank4class_tf._tf.nan import has_nan
from rank4class_tf._tf.where import where
from rank4class_tf.layers._columns import scores_and_columns


@_keras.register
class HardNegativeMining(keras.layers.Layer):
    """Keeps the positives of each list and the negatives with the highest scores.

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large Output Spaces",
    who analyse the effect on a loss.

    Args:
        num_hard_negatives: how many negatives to keep, >= 1; all if a list has fewer columns.
        **kwargs: arguments of Keras, such as `name`. `dtype` is float32 unless given.

    Inputs: scores `[batch, n]`, -inf for a masked item; labels `[batch]` or `[batch, P]`, the
    columns of the positives, -1 for none.

    Outputs: scores `[batch, P + m]`, of the positives and then of the negatives from high to low,
    -inf for a missing one; and their new columns, labels `[batch]`, or `[batch, P]` if P > 1: 0 to
    P - 1, or -1 where there is none.

    Raises:
        ValueError: if `num_hard_negatives` is not a positive integer, a shape is wrong or a column
            does not exist; under XLA, a list with such a column gets a NaN instead.

    Example:
        >>> scores, labels = tf.constant([[3.0, 1.0, 2.0, 4.0]]), tf.constant([1])
        >>> scores, labels = HardNegativeMining(2)(scores, labels)
        >>> scores.numpy(), labels.numpy()
        (array([[1., 4., 3.]], dtype=float32), array([0], dtype=int32))
    """

    def __init__(self, num_hard_negatives: int, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "float32", **kwargs})
        self.num_hard_negatives = _checks.positive_int("num_hard_negatives", num_hard_negatives)

    def call(self, scores: Any, labels: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the scores and labels of the shorter lists."""
        scores, column, there, zero = scores_and_columns(scores, labels)
        least = min if scores.shape[1] else tf.minimum
        size = least(self.num_hard_negatives, scores.shape[1] or tf.shape(scores)[1])
        minus_infinity = tf.constant(-float("inf"), scores.dtype)
        of_column = gather(scores, column)
        own = where(there, of_column, minus_infinity) + zero
        negatives = tf.stop_gradient(scores)
        some = tf.reduce_any(there, axis=1, keepdims=True)
        others = tf.where(some, minus_infinity, tf.stop_gradient(of_column))
        others = tf.tensor_scatter_nd_update(negatives, indices(column), others)
        highest, places = _top.top_k(others, size)
        # In a list with fewer negatives the search may return the positive.
        mined = where(highest > minus_infinity, gather(scores, places), minus_infinity)
        # A search may miss a NaN.
        mined = where(~has_nan(negatives), mined, float("nan"))
        labels = tf.where(there, tf.range(tf.shape(there)[1]), -1)
        if there.shape[1] == 1:
            labels = labels[:, 0]
        return tf.concat([own, mined], axis=1), labels

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), "num_hard_negatives": self.num_hard_negatives}
