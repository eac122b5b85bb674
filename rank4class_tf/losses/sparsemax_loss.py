"""SparsemaxLoss."""

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.losses._fenchel_young import fenchel_young


@_registry.register("loss")
class SparsemaxLoss(RankingLoss):
    r"""Sparsemax loss: Fenchel-Young with the Euclidean projection on the simplex.

    $$\frac{1}{2} \sum_{j : z_j > \tau} (z_j^2 - \tau^2) - \langle z, y \rangle
    + \frac{1}{2} \|y\|^2$$

    with y uniform over the positives and $\tau$ such that $\sum_j (z_j - \tau)_+ = 1$. Its gradient
    is sparse, and it is 0 where a single label is 1 above all others.

    Source: Martins & Astudillo 2016, "From Softmax to Sparsemax"; Rankmax, section 3.3.

    Args:
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Example:
        >>> loss = SparsemaxLoss()
        >>> float(loss([0], [[0.0, 0.0]]))  # tau = -1/2
        0.25
    """

    _searches_positives = False

    @property
    def probabilities(self) -> Probabilities:
        """Sparsemax."""
        return Probabilities(regularizer="euclidean")

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        return fenchel_young(lists)
