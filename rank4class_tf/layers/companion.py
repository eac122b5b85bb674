"""Companion."""

from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _config, _keras


@_keras.register
class Companion(keras.layers.Layer):
    """Passes its input through, and makes another layer, such as a sorter, part of the model.

    Keras does not count a loss as part of the model. If its sorter is in a `Companion` at the end
    of the model, the sorter's weights are trained (if it is trainable), saved, loaded and
    checkpointed with the model's. A model that is loaded from a file has its sorter in
    `model.layers[-1].layer`. To train it further, compile the model with a loss of that sorter.

    Args:
        layer: the layer to keep.
        **kwargs: arguments of Keras, such as `name`.

    Input: anything. Output: the same.

    Raises:
        ValueError: if `layer` is not a Keras layer.

    Example:
        >>> from rank4class_tf.layers import LaplaceSorter
        >>> sorter = LaplaceSorter()
        >>> model = keras.Sequential([keras.layers.Dense(1), Companion(sorter)])
        >>> model(tf.zeros([2, 3])).shape
        TensorShape([2, 1])
    """

    def __init__(self, layer: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        self.layer = _keras.checked_layer("layer", layer)

    def build(self, input_shape: Any) -> None:
        """Creates the weights of the layer, if it has none yet."""
        if not self.layer.built:
            self.layer.build((None, None))
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the input."""
        return tf.nest.map_structure(tf.identity, inputs)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), **_config.constructor_arguments(self, Companion)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the layer that `get_config` describes."""
        return cls(**_config.deserialized(config))
