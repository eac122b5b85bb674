"""Losses of pairs of items, and of single scores against their labels.

`Lists.sum_over_items` sums the pairs of a positive and a less relevant item, block by
block.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._tf.exact import is_zero, violation
from rank4class_tf._types import Array, Changing, Function, Tensor
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses.base import RankingLoss, present
from rank4class_tf.ops.weights import PairWeights, Side


class PairwiseLoss(RankingLoss):
    """Base of pairwise losses: a subclass gives the function of score differences."""

    item_weights = "formula"

    def __init__(
        self,
        lambda_weights: ops.NDCGLambdaWeights | None = None,
        label_smoothing: Changing = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        is_right = isinstance(lambda_weights, ops.NDCGLambdaWeights | None)
        rule = "`lambda_weights` must be None or `NDCGLambdaWeights`."
        _checks.require(is_right, rule, repr(lambda_weights))
        self.lambda_weights = lambda_weights

        check = _checks.fraction_below(0.5)
        self.label_smoothing = _checks.changing(
            "label_smoothing", label_smoothing, check
        )

    def sum_over_pairs(
        self,
        lists: ops.Lists,
        function: Function,
        loss_of_tie: Array,
        vanishes: bool = False,
    ) -> Tensor:
        r"""$\sum_{i,j} 1(y_i > y_j) \, w_{ij} f(s_j - s_i)$, `[batch]`.

        `loss_of_tie` is f(0).
        """
        smoothing = present(self.label_smoothing, lists.dtype)
        is_plain = is_zero(smoothing)
        # f and its slope tend to 0, or reach it if f `vanishes`, as the difference
        # falls. With smoothing they do not: the loss of a reversed pair rises.
        options = {"tends_to_zero": is_plain, "vanishes": vanishes and is_plain}

        def pair_loss(difference: Tensor) -> Tensor:
            loss = function(difference)
            if is_plain:
                return loss
            return (1 - smoothing) * loss + smoothing * function(-difference)

        if self.lambda_weights is not None:
            # Lambda weights need the rank of each item, and so all scores at once.
            lists = lists.dense()
            weights = self.lambda_weights(lists)
            losses = _weighted_sums(lists, pair_loss, weights, **options)
        elif lists.max_positives == 1 and is_plain:
            # With a single positive every item but itself is less relevant: the
            # cheapest sum.
            losses = lists.sum_over_differences(pair_loss, **options) - loss_of_tie
        elif not lists.is_graded:
            # Class ids: all positives are equally relevant, and no pair of them counts.
            losses = lists.negatives().sum_over_differences(pair_loss, **options)
        else:
            losses = lists.sum_over_items(
                lambda s, y, p, y_p: tf.where(y < y_p, pair_loss(s - p), 0),
                [lists.item_relevance()],
                [lists.relevance],
                **options,
            )
        return lists.sum_of_positives(losses)


def _weighted_sums(
    lists: ops.Lists, pair_loss: Function, weights: PairWeights, **options: bool
) -> Tensor:
    """Weighted sums over the less relevant items per positive, `[batch, P]`."""

    def weighted_loss(*values: Tensor) -> Tensor:
        half = len(values) // 2
        item = Side(*values[:half])
        positive = Side(*values[half:])
        loss = weights.weight(item, positive) * pair_loss(item.score - positive.score)
        return tf.where(item.relevance < positive.relevance, loss, 0)

    # The sum puts the scores first.
    _, *items = weights.items
    _, *positives = weights.positives
    return lists.sum_over_items(weighted_loss, items, positives, **options)


@_registry.register("loss")
class PairwiseHingeLoss(PairwiseLoss):
    r"""Pairwise hinge loss: each positive against each less relevant item.

    $$\ell(s, y) = \sum_{i,j} 1(y_i > y_j) \, w_{ij} \max(0, \eta - (s_i - s_j))$$

    With item weights, a pair has the weight of its more relevant item, as in
    TF-Ranking.

    Label smoothing reverses a pair with the probability $\epsilon$: the loss f of the
    difference $d = s_i - s_j$ becomes $(1 - \epsilon) f(d) + \epsilon f(-d)$.

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

    def compute(self, lists: ops.Lists) -> Tensor:
        margin = present(self.margin, lists.dtype)

        def hinge(difference: Tensor) -> Tensor:
            return violation(difference, margin)

        return self.sum_over_pairs(lists, hinge, margin, vanishes=True)


class PairwiseTemperatureLoss(PairwiseLoss):
    """Base of the losses of pairs whose differences are divided by a temperature."""

    tunable = ("label_smoothing", "temperature")

    def __init__(
        self,
        temperature: Changing = 1.0,
        lambda_weights: ops.NDCGLambdaWeights | None = None,
        label_smoothing: Changing = 0.0,
        **kwargs: Any,
    ):
        super().__init__(lambda_weights, label_smoothing, **kwargs)
        self.temperature = _checks.changing(
            "temperature", temperature, _checks.positive_float
        )


@_registry.register("loss")
class PairwiseLogisticLoss(PairwiseTemperatureLoss):
    r"""Pairwise logistic loss (PairLog): each positive against each less relevant item.

    $$\ell(s, y) = \sum_{i,j} 1(y_i > y_j) \, w_{ij}
    \log\left(1 + e^{-(s_i - s_j) / T}\right)$$

    Source: Rank4Class, equation 2, with $\sigma = 1 / T$ and $w = 1$.

    Args:
        temperature: T > 0, a number or a scalar `tf.Variable`, which gets no gradient.
        lambda_weights, label_smoothing: as in `PairwiseHingeLoss`, also for item
            weights.

    Example:
        >>> float(PairwiseLogisticLoss()([1], [[0.0, 0.0, 0.0]]))  # 2 log(2)
        1.3862943...
    """

    def compute(self, lists: ops.Lists) -> Tensor:
        t = present(self.temperature, lists.dtype)
        loss_of_tie = np.log(2.0)
        return self.sum_over_pairs(lists, lambda d: tf.nn.softplus(d / t), loss_of_tie)


@_registry.register("loss")
class PairwiseSoftZeroOneLoss(PairwiseTemperatureLoss):
    r"""A smooth count of the pairs in the wrong order, as a bounded pairwise loss.

    $$\ell(s, y) = \sum_{i,j} 1(y_i > y_j) \, w_{ij}
    \left(1 - \sigma((s_i - s_j) / T)\right)$$

    with the sigmoid $\sigma$. A pair has a loss of at most 1. So a wrong label has less
    influence than in `PairwiseLogisticLoss`, but a pair that is far apart in the wrong
    order hardly learns.

    Source: TF-Ranking and keras-rs. It takes the arguments of `PairwiseLogisticLoss`.

    Example:
        >>> float(PairwiseSoftZeroOneLoss()([1], [[0.0, 0.0, 0.0]]))  # 2 * 0.5
        1.0
    """

    def compute(self, lists: ops.Lists) -> Tensor:
        t = present(self.temperature, lists.dtype)
        return self.sum_over_pairs(lists, lambda d: tf.sigmoid(d / t), 0.5)


@_registry.register("loss")
class PairwiseMeanSquaredLoss(RankingLoss):
    r"""Mean squared error of score differences over all pairs of items, in O(n) time.

    $$\ell(s, y) = \frac{1}{n (n - 1)}
    \sum_{i \ne j} \left((s_i - s_j) - (y_i - y_j)\right)^2
    = \frac{2}{n - 1} \sum_i (e_i - \bar e)^2, \qquad e_i = s_i - y_i$$

    over the n items of the list, equally relevant ones too. Weights of items multiply
    the terms by $w_i$. A list without positives counts, too. With two items it is
    MarginMSE, whose labels are the scores of a teacher. Subtract the lowest score of
    each list from these, because a negative label masks its item.

    Source: TF-Ranking and keras-rs; Hofstätter et al. 2020, "Improving Efficient Neural
    Ranking Models with Cross-Architecture Knowledge Distillation", for MarginMSE.

    Example:
        >>> loss = PairwiseMeanSquaredLoss()
        >>> float(loss([[3.0, 0.0]], [[1.5, 0.5]]))  # ((1.5 - 0.5) - 3)^2
        4.0
    """

    searches_positives = needs_positive = False
    item_weights = "formula"

    def compute(self, lists: ops.Lists) -> Tensor:
        # A shift of all scores changes no difference. Less the mean score of the
        # positives, the scores are small, so that their differences keep their digits.
        scores = tf.where(lists.is_positive, lists.positive_scores, 0.0)
        is_positive = tf.cast(lists.is_positive, lists.dtype)
        number = tf.reduce_sum(is_positive, -1, keepdims=True)
        level = tf.reduce_sum(scores, -1, keepdims=True) / tf.maximum(number, 1)
        lists = lists.shifted(-tf.stop_gradient(level))

        # The mean error may be a constant, since the sum of squares is least there.
        n = tf.maximum(lists.num_items, 1)
        share = 1 / tf.maximum(n - 1, 1)
        relevance = lists.item_relevance()
        mean = lists.constant().sum(tf.subtract, items=[relevance]) / n
        mean = mean[:, tf.newaxis]
        item_weights = lists.item_weights
        if item_weights is None:
            squares = lists.sum(
                lambda s, y, m: tf.square(s - y - m), mean, items=[relevance]
            )
            return 2 * share * squares

        # For errors e with the mean 0, the sum of w_i (e_i - e_j)^2 over all pairs is n
        # times the sum of (w_i + mean of w) e_i^2. The product is 0, but has the
        # gradient of the mean.
        lists = lists.dense()
        errors = tf.where(lists.mask, lists.scores - relevance - mean, 0.0)
        mean_weight = tf.reduce_sum(item_weights, axis=-1) / n
        weights = item_weights + mean_weight[:, tf.newaxis]
        squares = tf.reduce_sum(weights * tf.square(errors), axis=-1)
        weighted_total = tf.reduce_sum(item_weights * errors, axis=-1)
        product = weighted_total * tf.reduce_sum(errors, axis=-1)
        return share * (squares - 2 * product / n)


@_registry.register("loss")
class MeanSquaredLoss(RankingLoss):
    r"""Mean squared error, rescaled for many classes.

    $$\ell(s, y) = \frac{1}{n} \left( k \sum_{i : y_i > 0} (s_i - M y_i)^2
    + \sum_{i : y_i = 0} s_i^2 \right)$$

    over the n items of the list, which may have no positive. $k = M = 1$ is the plain
    mean squared error; the paper takes k = 15 and M = 30 for ImageNet. Weights of items
    multiply the squares.

    Source: Hui & Belkin 2021, "Evaluation of neural architectures trained with square
    loss vs cross-entropy"; Rank4Class, section 4.1.

    Args:
        positive_weight: k > 0.
        positive_target: M > 0.

    Example:
        >>> float(MeanSquaredLoss()([0], [[0.5, 1.0]]))  # ((0.5 - 1)^2 + 1) / 2
        0.625
    """

    takes_probabilities = True  # Their squared error is the Brier score.
    searches_positives = needs_positive = compares_items = False
    item_weights = "formula"

    def __init__(
        self, positive_weight: float = 1.0, positive_target: float = 1.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.positive_weight = _checks.positive_float(
            "positive_weight", positive_weight
        )
        self.positive_target = _checks.positive_float(
            "positive_target", positive_target
        )

    @property
    def probabilities(self) -> Probabilities | None:
        """The nearest probabilities to s / M, which the loss fits if k = 1; or None."""
        if self.positive_weight != 1:
            return None
        return Probabilities(self.positive_target, "euclidean")

    def compute(self, lists: ops.Lists) -> Tensor:
        def share_of_square(s: Tensor, y: Tensor, n: Tensor) -> Tensor:
            error = s - self.positive_target * y
            # Division first: the square of a large score then stays finite as long as
            # it can.
            share = 1 / n
            if self.positive_weight != 1:
                weight = self.positive_weight * tf.ones_like(n)
                share *= tf.where(y > 0, weight, 1)
            return share * error * error

        # A list whose items are all masked has no loss, but must be finite.
        n = tf.maximum(lists.num_items, 1)[:, tf.newaxis]
        items = [lists.item_relevance()]
        if lists.item_weights is None:
            return lists.sum(share_of_square, n, items=items)
        items.append(lists.item_weights)
        return lists.sum(
            lambda s, y, w, n: w * share_of_square(s, y, n), n, items=items
        )


def gbce_power(num_negatives: int, num_classes: int, t: float = 0.75) -> float:
    r"""Returns the power of gBCE, for `SigmoidCrossEntropyLoss(positive_power=...)`.

    $$\beta = 1 - t (1 - \alpha), \qquad \alpha = m / (K - 1)$$

    With t = 0 it is 1, binary cross-entropy. With t = 1 it is $\alpha$, which makes up
    for the negatives that are not drawn, so that sigmoids of the scores are
    probabilities again.

    Source: Petrov & Macdonald 2023, "gSASRec: Reducing Overconfidence in Sequential
    Recommendation Trained with Negative Sampling".

    Args:
        num_negatives: m, how many negatives are drawn for an example, >= 1 and less
            than K.
        num_classes: K.
        t: how much of the overconfidence to remove, in [0, 1].

    Example:
        >>> gbce_power(256, num_classes=1025, t=0.5)  # 1 - 0.5 (1 - 256 / 1024)
        0.625
    """
    num_classes = _checks.positive_int("num_classes", num_classes)
    num_negatives = _checks.positive_int("num_negatives", num_negatives)
    t = _checks.fraction("t", t)
    rule = f"`num_negatives` must be less than {num_classes=}."
    _checks.require(num_negatives < num_classes, rule, num_negatives)
    share = num_negatives / (num_classes - 1)
    return 1 - t * (1 - share)


@_registry.register("loss")
class SigmoidCrossEntropyLoss(RankingLoss):
    r"""Binary cross-entropy of each item, summed over the items; gBCE with a power.

    $$\ell(s, y) = -\sum_i \left( y_i \log \sigma(s_i)^\beta
    + (1 - y_i) \log(1 - \sigma(s_i)) \right)$$

    with the sigmoid $\sigma$, also of a list without positives. So an example may have
    one score, with floating labels `[batch, 1]`. Weights of items multiply the terms.
    Labels should be in [0, 1]: a higher grade leaves the loss without a lower bound, as
    in TF-Ranking.

    Args:
        positive_power: $\beta$ > 0; 1 is binary cross-entropy.
            `ExtremeClassifier(num_sampled=B)` of K classes needs `gbce_power(B, K)`,
            which names the source.

    Example:
        >>> float(SigmoidCrossEntropyLoss()([0], [[0.0, 0.0]]))  # 2 log(2)
        1.3862943...
    """

    searches_positives = needs_positive = compares_items = False
    item_weights = "formula"

    def __init__(self, positive_power: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.positive_power = _checks.positive_float("positive_power", positive_power)

    def compute(self, lists: ops.Lists) -> Tensor:
        def cross_entropy(s: Tensor, y: Tensor) -> Tensor:
            positive_term = self.positive_power * y * tf.math.softplus(-s)
            return positive_term + (1 - y) * tf.math.softplus(s)

        items = [lists.item_relevance()]
        if lists.item_weights is None:
            return lists.sum(cross_entropy, items=items)
        items.append(lists.item_weights)
        return lists.sum(lambda s, y, w: w * cross_entropy(s, y), items=items)
