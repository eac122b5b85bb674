"""DotProductHead."""

from typing import Any

from rank4class_tf import _registry
from rank4class_tf.layers._base import Head
from rank4class_tf.layers.interactions import DotProductInteraction


@_registry.register("head")
class DotProductHead(Head):
    r"""The classical last layer, seen as a ranker: a dot product with each class encoding.

    $$s_i = c_i^\top h + b_i$$

    Source: Rank4Class, section 3.2.

    Args:
        classes: a number of classes, for a `ClassTable` with biases, or a layer of classes, as
            wide as the encodings.
        **kwargs: Keras's own, such as `name`.

    Input: `[batch, d]`. Output: `[batch, n]`.

    Raises:
        ValueError: if `classes` is no layer and not a positive integer, the input is not
            `[batch, d]`, or widths differ.

    Example:
        >>> DotProductHead(28).compute_output_shape((None, 16))
        (None, 28)
    """

    _table_arguments = {"use_bias": True}

    def __init__(self, classes: Any, **kwargs: Any) -> None:
        interaction = DotProductInteraction(dtype=kwargs.get("dtype"))
        super().__init__(classes, interaction, **kwargs)
