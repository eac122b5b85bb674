"""Losses of pairs of items, and of single scores against their labels.

`Lists.sum_over_items` sums the pairs of a positive and a less relevant item, block by block.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._tf.exact import is_zero, violation
from rank4class_tf._types import Changing
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses.base import RankingLoss, present


class PairwiseLoss(RankingLoss):
    """Base of the losses of pairs: a subclass gives the function of the difference of scores."""

    item_weights = "formula"

    def __init__(
        self,
        lambda_weights: ops.NDCGLambdaWeights | None = None,
        label_smoothing: Changing = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        is_right = lambda_weights is None or isinstance(lambda_weights, ops.NDCGLambdaWeights)
        rule = "`lambda_weights` must be None or `NDCGLambdaWeights`."
        _checks.require(is_right, rule, repr(lambda_weights))
        self.lambda_weights = lambda_weights
        check = _checks.fraction_below(0.5)
        self.label_smoothing = _checks.changing("label_smoothing", label_smoothing, check)

    def sum_over_pairs(
        self, lists: ops.Lists, function: Callable, loss_of_tie: float, vanishes: bool = False
    ) -> tf.Tensor:
        r"""$\sum_{i,j} 1(y_i > y_j) \, w_{ij} f(s_j - s_i)$, `[batch]`; `loss_of_tie` is f(0).

        Value and slope of f tend to 0, or reach it if it `vanishes`, as the difference falls.
        """
        smoothing = present(self.label_smoothing, lists.dtype)
        smooths = not is_zero(smoothing)
        # The loss of a reversed pair rises as the difference falls.
        options = {"tends_to_zero": not smooths, "vanishes": vanishes and not smooths}

        def pair_loss(difference: tf.Tensor) -> tf.Tensor:
            if not smooths:
                return function(difference)
            return (1 - smoothing) * function(difference) + smoothing * function(-difference)

        if self.lambda_weights is not None:
            # Lambda weights need the rank of each item, and so all scores at once.
            lists = lists.dense()
            items, positives, pair_weight = self.lambda_weights(lists)
            losses = lists.sum_over_items(
                lambda s, y, g, r, p, y_p, g_p, r_p: tf.where(
                    y < y_p, pair_weight(g, r, g_p, r_p) * pair_loss(s - p), 0
                ),
                [lists.item_relevance(), *items],
                [lists.relevance, *positives],
                **options,
            )
        elif lists.max_positives == 1 and not smooths:
            # With a single positive every item but itself is less relevant: the cheapest sum.
            losses = lists.sum_over_differences(pair_loss, **options) - loss_of_tie
        # Class ids: all positives are equally relevant, and no pair of them counts.
        elif not lists.is_graded:
            losses = lists.negatives().sum_over_differences(pair_loss, **options)
        else:
            losses = lists.sum_over_items(
                lambda s, y, p, y_p: tf.where(y < y_p, pair_loss(s - p), 0),
                [lists.item_relevance()],
                [lists.relevance],
                **options,
            )
        return lists.sum_of_positives(losses)


@_registry.register("loss")
class PairwiseHingeLoss(PairwiseLoss):
    r"""Pairwise hinge loss: each positive against each less relevant item.

    $$\ell(s, y) = \sum_{i,j} 1(y_i > y_j) \, w_{ij} \max(0, \eta - (s_i - s_j))$$

    With item weights, a pair has the weight of its more relevant item, as in TF-Ranking.

    Label smoothing reverses a pair with the probability $\epsilon$: the loss f of the difference
    $d = s_i - s_j$ becomes $(1 - \epsilon) f(d) + \epsilon f(-d)$.

    Source: Joachims 2002, "Optimizing search engines using clickthrough data".

    Args:
        margin: $\eta$ > 0, a number or a scalar `tf.Variable`, which gets no gradient.
        lambda_weights: `NDCGLambdaWeights`, for w; None means 1.
        label_smoothing: $\epsilon$, in [0, 0.5); or a variable, like `margin`.

    Example:
        >>> float(PairwiseHingeLoss()([0], [[0.0, 0.5, -1.0]]))  # (1 + 0.5) + (1 - 1)
        1.5
    """

    tunable = ("label_smoothing", "margin")

    def __init__(
        self,
        margin: Changing = 1.0,
        lambda_weights: ops.NDCGLambdaWeights | None = None,
        label_smoothing: Changing = 0.0,
        **kwargs: Any,
    ):
        super().__init__(lambda_weights, label_smoothing, **kwargs)
        self.margin = _checks.changing("margin", margin, _checks.positive_float)

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        margin = present(self.margin, lists.dtype)
        return self.sum_over_pairs(lists, lambda d: violation(d, margin), margin, vanishes=True)


@_registry.register("loss")
class PairwiseLogisticLoss(PairwiseLoss):
    r"""Pairwise logistic loss (PairLog): each positive against each less relevant item.

    $$\ell(s, y) = \sum_{i,j} 1(y_i > y_j) \, w_{ij} \log\left(1 + e^{-(s_i - s_j) / T}\right)$$

    Source: Rank4Class, equation 2, with $\sigma = 1 / T$ and $w = 1$.

    Args:
        temperature: T > 0, a number or a scalar `tf.Variable`, which gets no gradient.
        lambda_weights, label_smoothing: as in `PairwiseHingeLoss`, also for item weights.

    Example:
        >>> float(PairwiseLogisticLoss()([1], [[0.0, 0.0, 0.0]]))  # 2 log(2)
        1.3862943...
    """

    tunable = ("label_smoothing", "temperature")

    def __init__(
        self,
        temperature: Changing = 1.0,
        lambda_weights: ops.NDCGLambdaWeights | None = None,
        label_smoothing: Changing = 0.0,
        **kwargs: Any,
    ):
        super().__init__(lambda_weights, label_smoothing, **kwargs)
        self.temperature = _checks.changing("temperature", temperature, _checks.positive_float)

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        t = present(self.temperature, lists.dtype)
        return self.sum_over_pairs(lists, lambda d: tf.math.softplus(d / t), np.log(2.0))


@_registry.register("loss")
class MeanSquaredLoss(RankingLoss):
    r"""Mean squared error, rescaled for many classes.

    $$\ell(s, y) = \frac{1}{n} \left( k \sum_{i : y_i > 0} (s_i - M y_i)^2
    + \sum_{i : y_i = 0} s_i^2 \right)$$

    over the n items of the list; $k = M = 1$ is the plain mean squared error, k = 15 and M = 30 are
    Hui & Belkin's for ImageNet. Weights of items multiply the squares.

    Source: Hui & Belkin 2021, "Evaluation of neural architectures trained with square loss vs
    cross-entropy"; Rank4Class, section 4.1.

    Args:
        positive_weight: k > 0.
        positive_target: M > 0.

    Example:
        >>> float(MeanSquaredLoss()([0], [[0.5, 1.0]]))  # ((0.5 - 1)^2 + 1) / 2
        0.625
    """

    # The squared error of probabilities is the Brier score.
    takes_probabilities = True
    searches_positives = False
    item_weights = "formula"

    def __init__(self, positive_weight: float = 1.0, positive_target: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.positive_weight = _checks.positive_float("positive_weight", positive_weight)
        self.positive_target = _checks.positive_float("positive_target", positive_target)

    @property
    def probabilities(self) -> Probabilities | None:
        """The nearest probabilities to s / M, which the loss fits if k = 1; else None."""
        fits = self.positive_weight == 1
        return Probabilities(self.positive_target, "euclidean") if fits else None

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        def square(scores: tf.Tensor, relevance: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
            error = scores - self.positive_target * relevance
            # Division first: the square of a large score then stays finite as long as it can.
            share = 1 / n
            if self.positive_weight != 1:
                share *= tf.where(relevance > 0, self.positive_weight * tf.ones_like(n), 1)
            return share * error * error

        # A list whose items are all masked has no loss, but must be finite.
        n = tf.maximum(lists.num_items, 1)[:, tf.newaxis]
        items = [lists.item_relevance()]
        if lists.item_weights is None:
            return lists.sum(square, n, items=items)
        items.append(lists.item_weights)
        return lists.sum(lambda s, y, w, n: w * square(s, y, n), n, items=items)
