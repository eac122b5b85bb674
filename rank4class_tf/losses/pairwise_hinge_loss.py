"""PairwiseHingeLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.losses._lambda_weights import check_lambda_weights


@_registry.register("loss")
class PairwiseHingeLoss(RankingLoss):
    r"""Pairwise hinge loss: each positive against each less relevant item.

    $$\ell(s, y) = \sum_{i,j} 1(y_i > y_j) \, w_{ij} \max(0, \eta - (s_i - s_j))$$

    Label smoothing takes a pair the other way round with the probability $\epsilon$: the loss f of
    the difference $d = s_i - s_j$ becomes $(1 - \epsilon) f(d) + \epsilon f(-d)$. Metrics still see
    the labels as they are.

    Source: Joachims 2002, "Optimizing search engines using clickthrough data".

    Args:
        margin: $\eta$ > 0.
        lambda_weights: `NDCGLambdaWeights`, for w; None means 1.
        label_smoothing: $\epsilon$, in [0, 0.5).
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `margin` is not > 0, or `label_smoothing` not in [0, 0.5).

    Example:
        >>> loss = PairwiseHingeLoss()
        >>> float(loss([0], [[0.0, 0.5, -1.0]]))  # (1 + 0.5) + (1 - 1)
        1.5
    """

    def __init__(
        self,
        margin: float = 1.0,
        lambda_weights: ops.NDCGLambdaWeights | None = None,
        label_smoothing: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.margin = _checks.positive_float("margin", margin)
        self.lambda_weights = check_lambda_weights(lambda_weights)
        self.label_smoothing = _checks.fraction_below("label_smoothing", label_smoothing, 0.5)

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        return ops.pairwise_hinge_loss(
            lists,
            margin=self.margin,
            lambda_weights=self.lambda_weights,
            label_smoothing=self.label_smoothing,
        )
