"""LatentCrossHead."""

from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf.layers._base import InteractionHead


@_keras.register
class LatentCrossHead(InteractionHead):
    r"""Latent cross of encoding and class embedding, then an MLP (LC+MLP).

    $$s_i = \mathrm{MLP}\left(h \odot (1 + c_i)\right)$$

    Source: Rank4Class, section 4.2; latent cross: Beutel et al. 2018.

    Time and memory are O(batch n (d + u)) for the widest hidden layer u.

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
        >>> LatentCrossHead(num_classes=28, units=(64, 64)).compute_output_shape((None, 16))
        (None, 28)
    """

    def __init__(self, num_classes, units=(256, 256), activation="relu", **kwargs):
        super().__init__(num_classes, units, activation, **kwargs)
        self.first = keras.layers.Dense(self.units[0])

    def build_interaction(self, width):
        """Creates the first layer, for encodings and class embeddings of this width."""
        self.first.build((None, self.num_classes, width))

    def interact(self, encodings, classes):
        """The first layer before its activation: `[batch, num_classes, units[0]]`."""
        return self.first(encodings[:, None, :] * (1 + classes))
