"""CosineInteraction."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf.layers.interactions._base import Interaction, check_same_width, dot_products
from rank4class_tf.ops.classes.interactions import unit_rows


@_registry.register("interaction")
class CosineInteraction(Interaction):
    r"""The cosine of the angle, times a scale.

    $$s_i = a \, \frac{h^\top c_i}{\|h\| \|c_i\|}$$

    Source: Wang et al. 2018, "CosFace"; Deng et al. 2019, "ArcFace", for the scale.

    Args:
        scale: a, > 0. Losses of the softmax family need one well above 1, since cosines differ
            by 2 at most.
        **kwargs: Keras's own, such as `name`.

    Example:
        >>> interaction = CosineInteraction(scale=10.0)
        >>> interaction([tf.constant([[1.0, 0.0]]), tf.constant([[3.0, 4.0]])]).numpy()
        array([[6.]], dtype=float32)
    """

    def __init__(self, scale: float = 16.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = _checks.positive_float("scale", scale)

    def build_for(self, width: int, class_width: int) -> None:
        """Checks the widths."""
        check_same_width(width, class_width)

    def score_candidates(
        self, encodings: tf.Tensor, candidates: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Returns the scores, `[batch, n]`."""
        dtype = encodings.dtype
        if dtype.size < 4:  # Lengths need the range of float32.
            encodings, candidates = (tf.cast(x, tf.float32) for x in (encodings, candidates))
        scores = dot_products(unit_rows(encodings), unit_rows(candidates))
        return tf.cast(self.scale * scores, dtype)
