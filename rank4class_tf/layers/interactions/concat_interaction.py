"""ConcatInteraction."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _registry
from rank4class_tf.layers.interactions._mlp import MLPInteraction


@_registry.register("interaction")
class ConcatInteraction(MLPInteraction):
    r"""Encoding and candidate side by side, then an MLP; they may differ in width.

    $$s_i = \mathrm{MLP}\left([h; c_i]\right)$$

    Source: Rank4Class, section 4.2.

    The first layer acts on each half alone, so that the pairs are formed only after it.

    Args:
        units: widths of the hidden layers, at least one, each >= 1.
        activation: of the hidden layers, a name or a function of tensors without weights.
        dropout: share of the hidden numbers that training sets to zero, in [0, 1).
        layer_norm: whether each hidden layer is normalised before its activation.
        add_dot_product: whether the score is the MLP's plus the dot product.
        kernel_initializer: of the kernels.
        kernel_regularizer: None or a regularizer of the kernels.
        seed: of the dropout, an int; None draws one from NumPy's global generator.
        **kwargs: Keras's own, such as `name`.

    Example:
        >>> interaction = ConcatInteraction(units=(16,))
        >>> interaction([tf.ones([2, 8]), tf.ones([5, 3])]).shape
        TensorShape([2, 5])
    """

    def _build_first(self, width: int, class_width: int) -> list[Any]:
        """Creates the kernels of the first layer, for encodings and for candidates."""
        names = {"first_of_encodings": width, "first_of_candidates": class_width}
        return [self._add_kernel(name, (size, self.units[0])) for name, size in names.items()]

    def _first_layer(
        self, encodings: tf.Tensor, candidates: tf.Tensor, kernels: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """The first layer without bias and activation: `[batch, n, units[0]]`."""
        of_encodings, of_candidates = kernels
        each = tf.matmul(encodings, of_encodings)[:, tf.newaxis]
        return each + tf.tensordot(candidates, of_candidates, axes=1)
