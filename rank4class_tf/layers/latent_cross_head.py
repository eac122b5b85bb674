"""LatentCrossHead."""

from rank4class_tf import _keras
from rank4class_tf.layers._base import InteractionHead
from rank4class_tf.layers._interactions import LatentCross


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

    interaction_class = LatentCross
