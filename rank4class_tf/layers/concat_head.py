"""ConcatHead."""

from rank4class_tf import _keras
from rank4class_tf.layers._base import InteractionHead
from rank4class_tf.layers._interactions import Concat


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

    interaction_class = Concat
