"""SoftRankSorter."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.layers._sorter import Sorter


@_registry.register("sorter")
class SoftRankSorter(Sorter):
    r"""Soft ranks by projection on the permutahedron, in O(d log d).

    $$\pi = \arg\min_{\mu \in \mathcal{P}} \left\| \mu + \frac{s}{\varepsilon} \right\|^2, \qquad
    \mathcal{P} = \mathrm{conv} \{ \text{permutations of } (1, \dots, d) \}$$

    Ranks rise where scores fall, and sum to d (d + 1) / 2. Where neighbours are further apart than
    $\varepsilon$, they are exact and have no gradient.

    Source: Blondel et al. 2020, equations 6 and 8 (quadratic regularisation).

    Args:
        regularization: $\varepsilon$ > 0. The smaller, the closer to the exact ranks, and the fewer
            items have a gradient.
        **kwargs: Keras's own, such as `name`.

    Input: scores `[batch, d]`, and `mask`, booleans `[batch, d]` or None. Output: ranks
    `[batch, d]`; see `Sorter`.

    Raises:
        ValueError: if `regularization` is not a finite number > 0.

    Example:
        >>> SoftRankSorter(regularization=0.5)(tf.constant([[3.0, 1.0, 1.25, 2.0]])).numpy()
        array([[1.  , 3.75, 3.25, 2.  ]], dtype=float32)
    """

    def __init__(self, regularization: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.regularization = _checks.positive_float("regularization", regularization)

    def soft_ranks(self, scores: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """The formula."""
        return ops.projected_ranks(scores, self.regularization, mask)
