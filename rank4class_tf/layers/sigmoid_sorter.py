"""SigmoidSorter."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.layers._sorter import Sorter


@_registry.register("sorter")
class SigmoidSorter(Sorter):
    r"""Soft ranks by sigmoids of all differences, in O(d²) time and O(d) memory.

    $$\pi(i) = 1 + \sum_{j \ne i} \sigma\left(\frac{s_j - s_i}{T}\right)$$

    Ranks rise where scores fall, and sum to d (d + 1) / 2. `LaplaceSorter` is much like it,
    and far faster for long lists.

    Source: SoDeep (Engilberge et al. 2019), equation 12, with $\lambda = 1 / T$; Qin et al. 2010.

    Args:
        temperature: T > 0. The smaller, the closer to the exact ranks, and the smaller the gradient
            of items that are far apart.
        **kwargs: Keras's own, such as `name`.

    Input: scores `[batch, d]`, and `mask`, booleans `[batch, d]` or None. Output: ranks
    `[batch, d]`; see `Sorter`.

    Raises:
        ValueError: if `temperature` is not a finite number > 0.

    Example:
        >>> SigmoidSorter(temperature=0.01)(tf.constant([[3.0, 1.0, 1.0, 2.0]])).numpy()
        array([[1. , 3.5, 3.5, 2. ]], dtype=float32)
    """

    def __init__(self, temperature: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = _checks.positive_float("temperature", temperature)

    def soft_ranks(self, scores: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """The formula."""
        return ops.all_sigmoid_ranks(scores, self.temperature, mask)
