"""LatentCrossInteraction."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.layers.interactions._base import check_same_width
from rank4class_tf.layers.interactions._mlp import MLPInteraction


@_registry.register("interaction")
class LatentCrossInteraction(MLPInteraction):
    r"""Latent cross of encoding and candidate, then an MLP.

    $$s_i = \mathrm{MLP}\left(h \odot (1 + c_i)\right)$$

    Source: Rank4Class, section 4.2; latent cross: Beutel et al. 2018.

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
        >>> import tensorflow as tf
        >>> interaction = LatentCrossInteraction(units=(16,))
        >>> interaction([tf.ones([2, 8]), tf.ones([5, 8])]).shape
        TensorShape([2, 5])
    """

    def _build_first(self, width: int, class_width: int) -> list[Any]:
        """Creates the kernel of the first layer."""
        check_same_width(width, class_width)
        return [self._add_kernel("first", (width, self.units[0]))]

    def _first_layer(
        self, encodings: tf.Tensor, candidates: tf.Tensor, kernels: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """The first layer without bias and activation: `[batch, n, units[0]]`."""
        return ops.latent_cross(encodings, candidates, *kernels)
