"""RankmaxLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.losses._base import RankingLoss


@_registry.register("loss")
class RankmaxLoss(RankingLoss):
    r"""Cross-entropy of the Rankmax projection, which adapts to each positive.

    $$\ell(z, Y) = \sum_{y \in Y} -w_y \log \mathrm{Rankmax}(z, y)_y$$

    which for k = 1 is $\sum_y w_y (\log \sum_i (z_i - z_y + \eta)_+ - \log \eta)$. Items that score
    more than the margin $\eta$ below the positive, or below the k-th score if that is lower, have
    no gradient.

    The projection needs the positive, so that the loss gives no probabilities of unlabelled scores:
    `rank4class_tf.calibrate` fits a softmax to them.

    Source: Kong et al. 2020, "Rankmax", equations 14 and 15; see `ops.rankmax_loss` for a
    correction of its equation 16.

    Args:
        k: number of items to select, >= 1.
        margin: $\eta$ > 0.
        positive_reduction: `"sum"` over the positives, or their weighted `"mean"`.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `k` is not a positive integer, `margin` is not > 0 or `positive_reduction`
            is unknown; in the call, if `k` exceeds the number of items.

    Example:
        >>> loss = RankmaxLoss()
        >>> float(loss([0], [[1.0, 0.5, 0.0]]))  # log(1 + 0.5)
        0.40546...
    """

    def __init__(
        self, k: int = 1, margin: float = 1.0, positive_reduction: str = "sum", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.k = _checks.positive_int("k", k)
        self.margin = _checks.positive_float("margin", margin)
        self.positive_reduction = _checks.one_of(
            "positive_reduction", positive_reduction, ("sum", "mean")
        )

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        return ops.rankmax_loss(
            lists, k=self.k, margin=self.margin, positive_reduction=self.positive_reduction
        )
