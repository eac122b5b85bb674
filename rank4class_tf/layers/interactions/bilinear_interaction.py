"""BilinearInteraction."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _registry
from rank4class_tf._keras import keras
from rank4class_tf.layers.interactions._base import Interaction, check_same_width, dot_products


@_registry.register("interaction")
class BilinearInteraction(Interaction):
    r"""A bilinear form; encodings and candidates may differ in width.

    $$s_i = h^\top W c_i$$

    Args:
        kernel_initializer: of W, `[d, c]`.
        kernel_regularizer: None or a regularizer of W.
        **kwargs: Keras's own, such as `name`.

    Example:
        >>> interaction = BilinearInteraction(kernel_initializer="ones")
        >>> interaction([tf.ones([1, 2]), tf.constant([[3.0, 4.0, 5.0]])]).numpy()
        array([[24.]], dtype=float32)
    """

    def __init__(
        self,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)

    def build_for(self, width: int, class_width: int) -> None:
        """Creates W."""
        self.kernel = self.add_weight(
            name="kernel",
            shape=(width, class_width),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
        )

    def score_candidates(
        self, encodings: tf.Tensor, candidates: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Returns the scores, `[batch, n]`."""
        return dot_products(tf.matmul(encodings, self.kernel), candidates)

    def start_as_dot_product(self) -> None:
        """Sets W to the identity."""
        check_same_width(*self.kernel.shape)
        self.kernel.assign(tf.eye(self.kernel.shape[0], dtype=self.kernel.dtype))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {
            **super().get_config(),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
        }
