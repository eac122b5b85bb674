"""MeanSquaredLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses._base import RankingLoss


@_registry.register("loss")
class MeanSquaredLoss(RankingLoss):
    r"""Mean squared error, rescaled for many classes.

    $$\ell(s, y) = \frac{1}{n} \left( k \sum_{i : y_i > 0} (s_i - M y_i)^2
    + \sum_{i : y_i = 0} s_i^2 \right)$$

    over the n items of the list; $k = M = 1$ is the plain mean squared error. For the 1,000 classes
    of ImageNet, Hui & Belkin take k = 15 and M = 30. Weights of items multiply the squares.

    Source: Hui & Belkin 2021, "Evaluation of neural architectures trained with square loss vs
    cross-entropy"; Rank4Class, section 4.1.

    Args:
        positive_weight: k > 0.
        positive_target: M > 0.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if a number is not > 0.

    Example:
        >>> loss = MeanSquaredLoss()
        >>> float(loss([0], [[0.5, 1.0]]))  # ((0.5 - 1)^2 + 1) / 2
        0.625
    """

    # The squared error of probabilities is the Brier score.
    _takes_probabilities = True

    _searches_positives = False

    _item_weights = "formula"

    def __init__(
        self, positive_weight: float = 1.0, positive_target: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.positive_weight = _checks.positive_float("positive_weight", positive_weight)
        self.positive_target = _checks.positive_float("positive_target", positive_target)

    @property
    def probabilities(self) -> Probabilities | None:
        """The nearest probabilities to s / M, which the loss fits if k = 1; else None."""
        if self.positive_weight != 1:
            return None
        return Probabilities(self.positive_target, "euclidean")

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""

        def square(scores, relevance, n):
            error = scores - self.positive_target * relevance
            # Division first: the square of a large score then stays finite as long as it can.
            share = 1 / n
            if self.positive_weight != 1:
                share *= tf.where(relevance > 0, tf.constant(self.positive_weight, n.dtype), 1)
            return share * error * error

        n = tf.maximum(lists.num_items, 1)[:, tf.newaxis]
        items = [lists.item_relevance()]
        if lists.item_weights is None:
            return lists.sum(square, n, items=items)

        def weighted(scores, relevance, weights, n):
            return weights * square(scores, relevance, n)

        return lists.sum(weighted, n, items=[*items, lists.item_weights])
