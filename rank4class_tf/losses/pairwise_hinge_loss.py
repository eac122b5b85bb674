"""PairwiseHingeLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _keras, ops
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.losses._lambda_weights import check_lambda_weights


@_keras.register
class PairwiseHingeLoss(RankingLoss):
    r"""Pairwise hinge loss: each positive against each less relevant item.

    $$\ell(s, y) = \sum_{i,j} 1(y_i > y_j) \, w_{ij} \max(0, \eta - (s_i - s_j))$$

    Source: Joachims 2002, "Optimizing search engines using clickthrough data".

    Args:
        margin: $\eta$ > 0.
        lambda_weights: `NDCGLambdaWeights`, for w; None means 1.
        **kwargs: `label_format`, `max_positives`, `reduction`, `name`: see `RankingLoss`.

    Raises:
        ValueError: if `margin` is not > 0.

    Example:
        >>> loss = PairwiseHingeLoss()
        >>> float(loss([0], [[0.0, 0.5, -1.0]]))  # (1 + 0.5) + (1 - 1)
        1.5
    """

    def __init__(
        self,
        margin: float = 1.0,
        lambda_weights: ops.NDCGLambdaWeights | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.margin = _checks.positive_float("margin", margin)
        self.lambda_weights = check_lambda_weights(lambda_weights)

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        return ops.pairwise_hinge_loss(
            lists, margin=self.margin, lambda_weights=self.lambda_weights
        )
