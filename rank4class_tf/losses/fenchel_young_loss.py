"""FenchelYoungLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses._base import RankingLoss


@_registry.register("loss")
class FenchelYoungLoss(RankingLoss):
    r"""Fenchel-Young loss of a projection on the (n, k)-simplex.

    $$\Omega^*(z) + \Omega(y) - \langle z, y \rangle, \qquad \Omega(x) = g(x) / \alpha, \qquad
    y_i = k / |Y| \text{ for } i \in Y$$

    It is convex, and its gradient is the projection less y. A list of fewer than k positives
    selects as many items as it has positives; grades of relevance do not matter.

    `alpha="adaptive"` takes the $\alpha_y$ of Rankmax, one for each positive, with their losses
    summed by relevance: see `ops.adaptive_fenchel_young_loss`.

    Source: Blondel et al. 2020, "Learning with Fenchel-Young Losses"; Rankmax, section 3.2.

    Args:
        regularizer: `"euclidean"`, $g = \frac{1}{2} \|x\|^2$, `"entropy"`,
            $g = \sum_i x_i \log x_i$, or an `ops.Regularizer` of your own; a loss with one is
            saved if it is of a class that Keras can serialize.
        k: number of items to select, >= 1.
        alpha: $\alpha$ > 0, or `"adaptive"` (euclidean with k = 1 only).
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if an argument is out of range; in the call, if `k` exceeds the number of items.

    Example:
        >>> loss = FenchelYoungLoss("entropy")
        >>> float(loss([1], [[0.0, 0.0]]))  # log(2), as softmax
        0.6931471...
    """

    def __init__(
        self, regularizer: Any = "euclidean", k: int = 1, alpha: float | str = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        ops.get_regularizer(regularizer)
        self.regularizer = regularizer
        self.k = _checks.positive_int("k", k)
        if alpha != "adaptive":
            alpha = _checks.positive_float("alpha", alpha)
        elif (regularizer, k) != ("euclidean", 1):
            raise ValueError(
                "`alpha` must be a number unless regularizer='euclidean' and k=1. "
                f"Received: alpha={alpha!r}, regularizer={regularizer!r}, k={k}."
            )
        self.alpha: Any = alpha
        self._searches_positives = self.alpha == "adaptive"

    @property
    def probabilities(self) -> Probabilities | None:
        """The projection; None for k > 1, and where it needs the label."""
        if self.k > 1 or self.alpha == "adaptive":
            return None
        return Probabilities(1 / self.alpha, self.regularizer)

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        if self.alpha == "adaptive":
            return ops.adaptive_fenchel_young_loss(lists)
        return ops.fenchel_young_loss(
            lists, regularizer=self.regularizer, k=self.k, alpha=self.alpha
        )
