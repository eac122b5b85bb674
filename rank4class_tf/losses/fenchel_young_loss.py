"""FenchelYoungLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._tf.exact import violation
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.losses._fenchel_young import fenchel_young


@_registry.register("loss")
class FenchelYoungLoss(RankingLoss):
    r"""Fenchel-Young loss of a projection on the (n, k)-simplex.

    $$\Omega^*(z) + \Omega(y) - \langle z, y \rangle, \qquad \Omega(x) = g(x) / \alpha, \qquad
    y_i = k / |Y| \text{ for } i \in Y$$

    It is convex, and its gradient is the projection less y, $p_\alpha(z) - y$. A list of fewer than
    k positives selects as many items as it has positives, so that y lies on the simplex; grades of
    relevance do not matter. Euclidean with k = 1, $\alpha$ = 1 is the Sparsemax loss, entropy with
    k = 1, $\alpha$ = 1 is softmax cross-entropy.

    `alpha="adaptive"` takes the $\alpha_y$ of Rankmax, one for each positive, and weighs their
    losses by relevance:

    $$\sum_y w_y \frac{\sum_{i \ne y} v_i^2 + R^2}{2 (1 + R)}, \qquad v_i = (z_i - z_y + 1)_+,
    \quad R = \sum_{i \ne y} v_i$$

    That is $\Omega^*(z) + \Omega(y) - z_y$ for $\Omega(x) = \|x\|^2 / (2 \alpha_y(z))$. It is
    convex, >= 0, and 0 exactly where the label is a margin of 1 above all others. Its gradient is
    that of the whole expression: with $\alpha_y$ held constant, $p(z) - y$ is not the gradient of
    any function.

    Source: Blondel et al. 2020, "Learning with Fenchel-Young Losses"; Rankmax, section 3.2, and,
    worked out, the outlook of section 5 for `"adaptive"`.

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
            return _of_adaptive_alpha(lists)
        return fenchel_young(lists, self.regularizer, self.k, self.alpha)


def _of_adaptive_alpha(lists):
    # The label itself adds 1 to both sums.
    total = lists.sum_over_differences(lambda d: violation(d, 1.0)) - 1
    squares = lists.sum_over_differences(lambda d: violation(d, 1.0) ** 2) - 1
    # total**2 / (1 + total), written so that it does not overflow.
    losses = (squares / (1 + total) + total * (total / (1 + total))) / 2
    return lists.sum_of_positives(lists.relevance * losses)
