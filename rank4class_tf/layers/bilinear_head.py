"""BilinearHead."""

from typing import Any

from rank4class_tf import _registry
from rank4class_tf.layers._base import Head
from rank4class_tf.layers.interactions import BilinearInteraction


@_registry.register("head")
class BilinearHead(Head):
    r"""A bilinear form of encoding and class encoding, which may differ in width.

    $$s_i = h^\top W c_i + b_i$$

    Args:
        classes: a number of classes, for a `ClassTable` with biases, or a layer of classes.
        kernel_initializer: of W, `[d, width of the classes]`.
        kernel_regularizer: None or a regularizer of W.
        **kwargs: Keras's own, such as `name`.

    Input: `[batch, d]`. Output: `[batch, n]`.

    Raises:
        ValueError: if `classes` is no layer and not a positive integer, or the input is not
            `[batch, d]`.

    Example:
        >>> BilinearHead(28).compute_output_shape((None, 16))
        (None, 28)
    """

    _table_arguments = {"use_bias": True}

    def __init__(
        self,
        classes: Any,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        interaction = BilinearInteraction(
            kernel_initializer, kernel_regularizer, dtype=kwargs.get("dtype")
        )
        super().__init__(classes, interaction, **kwargs)
