"""DotProductInteraction."""

import tensorflow as tf

from rank4class_tf import _registry
from rank4class_tf.layers.interactions._base import Interaction, check_same_width, dot_products


@_registry.register("interaction")
class DotProductInteraction(Interaction):
    r"""The dot product; without weights.

    $$s_i = c_i^\top h$$

    Source: Rank4Class, section 3.2.

    Example:
        >>> import tensorflow as tf
        >>> DotProductInteraction()([tf.ones([1, 2]), tf.constant([[3.0, 4.0]])]).numpy()
        array([[7.]], dtype=float32)
    """

    def build_for(self, width: int, class_width: int) -> None:
        """Checks the widths."""
        check_same_width(width, class_width)

    def score_candidates(
        self, encodings: tf.Tensor, candidates: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Returns the scores, `[batch, n]`."""
        return dot_products(encodings, candidates)

    def start_as_dot_product(self) -> None:
        """It is one."""
