"""ConcatHead."""

from rank4class_tf import _registry
from rank4class_tf.layers._base import MLPHead
from rank4class_tf.layers.interactions import ConcatInteraction


@_registry.register("head")
class ConcatHead(MLPHead):
    r"""Encoding and class encoding side by side, then an MLP (Concat+MLP).

    $$s_i = \mathrm{MLP}\left([h; c_i]\right)$$

    Source: Rank4Class, section 4.2.

    The first layer acts on each half alone, so that the pairs are formed only after it. Time and
    memory are O(batch n u) for the widest hidden layer u. More than two thousand classes go by
    blocks of a thousand, and memory stays at what one takes, for a third more time.

    Args:
        classes: a number of classes, for a `ClassTable`, or a layer of classes.
        units: widths of the hidden layers, at least one, each >= 1.
        activation: of the hidden layers, a name or a function of tensors without weights.
        dropout: share of the hidden numbers that training sets to zero, in [0, 1).
        layer_norm: whether each hidden layer is normalised before its activation.
        add_dot_product: whether the score is the MLP's plus the dot product.
        kernel_initializer: of the kernels.
        kernel_regularizer: None or a regularizer of the kernels.
        seed: of the dropout, an int; None draws one from NumPy's global generator.
        **kwargs: Keras's own, such as `name`.

    Input: `[batch, d]`. Output: `[batch, n]`.

    Raises:
        ValueError: if `classes` is no layer and not a positive integer, a number is out of range,
            or the input is not `[batch, d]`.

    Example:
        >>> ConcatHead(28, units=(64, 64)).compute_output_shape((None, 16))
        (None, 28)
    """

    _interaction_class = ConcatInteraction
