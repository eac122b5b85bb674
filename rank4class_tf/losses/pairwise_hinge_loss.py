"""PairwiseHingeLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._tf.exact import violation
from rank4class_tf._tf.gradients import value_and_gradients
from rank4class_tf.losses import _hinge_by_sorting
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.losses._pairwise import check_lambda_weights, sum_over_pairs

# From this many positives on, sorting costs less than comparing each with every item.
_MANY_POSITIVES = 64


@_registry.register("loss")
class PairwiseHingeLoss(RankingLoss):
    r"""Pairwise hinge loss: each positive against each less relevant item.

    $$\ell(s, y) = \sum_{i,j} 1(y_i > y_j) \, w_{ij} \max(0, \eta - (s_i - s_j))$$

    With item weights, a pair has the weight of its more relevant item, as in TF-Ranking.

    Label smoothing reverses a pair with the probability $\epsilon$: the loss f of the difference
    $d = s_i - s_j$ becomes $(1 - \epsilon) f(d) + \epsilon f(-d)$. Metrics still see the original
    labels.

    With many positives, and neither weights nor label smoothing, the loss comes from one sort and
    prefix sums, O(n log n) for each distinct label above 0.

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

    _item_weights = "formula"

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
        margin = self.margin

        def pair_loss(difference):
            return violation(difference, margin)

        width = lists.num_columns
        few = lists.has_few_columns or width is not None and width <= _MANY_POSITIVES
        if few or self.lambda_weights is not None or self.label_smoothing:
            return sum_over_pairs(
                lists, pair_loss, margin, self.lambda_weights, self.label_smoothing, vanishes=True
            )

        def by_pairs(lists, *tensors):
            return value_and_gradients(
                lambda *tensors: sum_over_pairs(lists.on(*tensors), pair_loss, margin), *tensors
            )

        def by_the_faster(lists, *tensors):
            return tf.cond(
                lists.num_visited <= _MANY_POSITIVES,
                lambda: by_pairs(lists, *tensors),
                lambda: _hinge_by_sorting.value_and_gradients(lists, margin),
            )

        return lists.with_ready_gradients(by_the_faster)
