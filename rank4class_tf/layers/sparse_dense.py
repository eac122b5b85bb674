"""SparseDense."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _config, _keras


@_keras.register
class SparseDense(keras.layers.Layer):
    r"""A dense layer for sparse features; a step touches only the rows of these features.

    $$h = b + \sum_f x_f W_f$$

    Args:
        units: width of the output, >= 1.
        **kwargs: arguments of Keras, such as `name`.

    Input: `tf.SparseTensor` `[batch, features]`. Output: `[batch, units]`.

    Raises:
        ValueError: if `units` is not a positive integer or the number of features is unknown.

    Example:
        >>> features = tf.sparse.from_dense([[0.0, 2.0, 0.0]])
        >>> SparseDense(units=4)(features).shape
        TensorShape([1, 4])
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_jit = False  # XLA compiles no sparse tensors.
        self.units = _checks.positive_int("units", units)

    def build(self, input_shape: Any) -> None:
        """Creates a row of weights for each feature, and the bias."""
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                "`inputs` must have the shape [batch, features] with features known. "
                f"Received: {tuple(input_shape)}."
            )
        shape = (int(input_shape[-1]), self.units)
        self.kernel = _keras.add_table(self, "kernel", shape, "glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")
        self.built = True

    def call(self, inputs: Any) -> tf.Tensor:
        """Adds up the rows of the features of each example."""
        if not isinstance(inputs, tf.SparseTensor):
            raise ValueError(
                "`inputs` must be a SparseTensor [batch, features]. "
                f"Received: {type(inputs).__name__}."
            )
        features, position = tf.unique(inputs.indices[:, 1])
        rows = tf.gather(_keras.variable(self.kernel), features)
        indices = tf.stack([inputs.indices[:, 0], tf.cast(position, tf.int64)], axis=1)
        shape = tf.stack([inputs.dense_shape[0], tf.size(features, tf.int64)])
        # The columns of a row may be out of order now, which the product allows.
        product = tf.sparse.sparse_dense_matmul(
            tf.SparseTensor(indices, tf.cast(inputs.values, rows.dtype), shape), rows
        )
        return tf.cast(product, self.compute_dtype) + tf.cast(self.bias, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """Returns `(batch, units)`."""
        return (input_shape[0], self.units)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), **_config.constructor_arguments(self, SparseDense)}
