"""LaplaceSorter."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.layers._sorter import Sorter


@_registry.register("sorter")
class LaplaceSorter(Sorter):
    r"""Soft ranks by the Laplace distribution, in O(d log d): for lists of any length.

    $$\pi(i) = 1 + \sum_{j \ne i} F\left(\frac{s_j - s_i}{T}\right), \qquad
    F(x) = \begin{cases} e^x / 2 & x < 0 \\ 1 - e^{-x} / 2 & x \ge 0 \end{cases}$$

    Ranks rise where scores fall, and sum to d (d + 1) / 2.

    Source: Struski et al. 2025 (LapSum) have the idea of the sums.

    Args:
        temperature: T > 0. The smaller, the closer to the exact ranks, and the smaller the gradient
            of items that are far apart.
        **kwargs: Keras's own, such as `name`.

    Input: scores `[batch, d]`, and `mask`, booleans `[batch, d]` or None. Output: ranks
    `[batch, d]`; see `Sorter`.

    Raises:
        ValueError: if `temperature` is not a finite number > 0.

    Example:
        >>> LaplaceSorter(temperature=0.01)(tf.constant([[3.0, 1.0, 1.0, 2.0]])).numpy()
        array([[1. , 3.5, 3.5, 2. ]], dtype=float32)
    """

    def __init__(self, temperature: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = _checks.positive_float("temperature", temperature)

    def soft_ranks(self, scores: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """The formula."""
        return ops.laplace_ranks(scores, self.temperature, mask)
