"""ConcatHead."""

from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf.layers._base import InteractionHead


@_keras.register
class ConcatHead(InteractionHead):
    r"""Encoding and class embedding side by side, then an MLP (Concat+MLP).

    $$s_i = \mathrm{MLP}\left([h; c_i]\right)$$

    Source: Rank4Class, section 4.2.

    The first layer acts on each half alone, so that the pairs are formed only after it. Time and
    memory are O(batch n u) for the widest hidden layer u.

    Args:
        num_classes: number of classes n, >= 1.
        units: widths of the hidden layers, at least one.
        activation: name of the hidden layers' activation.
        **kwargs: Keras's own, such as `name`.

    Input: `[batch, d]`. Output: `[batch, n]`.

    Raises:
        ValueError: if `num_classes` or a width is not a positive integer, or the input is not
            `[batch, d]`.

    Example:
        >>> ConcatHead(num_classes=28, units=(64, 64)).compute_output_shape((None, 16))
        (None, 28)
    """

    def __init__(self, num_classes, units=(256, 256), activation="relu", **kwargs):
        super().__init__(num_classes, units, activation, **kwargs)
        self.of_encodings = keras.layers.Dense(self.units[0])
        self.of_classes = keras.layers.Dense(self.units[0], use_bias=False)

    def build_interaction(self, width):
        """Creates the first layer, for encodings and class embeddings of this width."""
        self.of_encodings.build((None, width))
        self.of_classes.build((self.num_classes, width))

    def interact(self, encodings, classes):
        """The first layer before its activation: `[batch, num_classes, units[0]]`."""
        return self.of_encodings(encodings)[:, None, :] + self.of_classes(classes)
