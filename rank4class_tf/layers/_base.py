"""What all heads share: shapes and configuration."""

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _config


class Head(keras.layers.Layer):
    """Base of the heads: maps encodings `[batch, d]` to scores `[batch, num_classes]`."""

    def __init__(self, num_classes, **kwargs):
        """Args shared by all heads.

        Args:
            num_classes: number of classes, >= 1.
            **kwargs: Keras's own, such as `name`.
        """
        super().__init__(**kwargs)
        self.num_classes = _checks.positive_int("num_classes", num_classes)

    def build(self, input_shape):
        """Creates the weights."""
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                "`inputs` must have the shape [batch, d] with d known. "
                f"Received: {tuple(input_shape)}."
            )
        self.build_head(int(input_shape[-1]))
        self.built = True

    def build_head(self, width):
        """Creates the weights for encodings `[batch, width]`."""
        raise NotImplementedError

    def compute_output_shape(self, input_shape):
        """Returns `(batch, num_classes)`."""
        return (input_shape[0], self.num_classes)

    def get_config(self):
        """Returns the constructor arguments."""
        return {**super().get_config(), **_config.constructor_arguments(self, Head)}


class InteractionHead(Head):
    """Base of the heads that score an encoding with class embeddings by an MLP."""

    interaction_class: type

    def __init__(self, num_classes, units=(256, 256), activation="relu", **kwargs):
        """Args shared by the heads with an MLP.

        Args:
            num_classes: number of classes, >= 1.
            units: widths of the hidden layers, at least one, each >= 1.
            activation: name of the hidden layers' activation.
            **kwargs: Keras's own, such as `name`.
        """
        super().__init__(num_classes, **kwargs)
        self.interaction = self.interaction_class(units, activation)
        self.units = self.interaction.units
        self.activation = activation

    def build_head(self, width):
        """Creates the class embeddings, as wide as the encodings, and the MLP."""
        self.class_embeddings = self.add_weight(
            name="class_embeddings",
            shape=(self.num_classes, width),
            initializer="glorot_uniform",
        )
        self.interaction.build((None, width))

    def call(self, inputs):
        """Scores every class."""
        classes = tf.cast(tf.convert_to_tensor(self.class_embeddings), self.compute_dtype)
        return self.interaction(inputs, classes)
