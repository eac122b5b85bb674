"""PairwiseLogisticLoss."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.losses._pairwise import check_lambda_weights, sum_over_pairs
from rank4class_tf.losses._temperature import (
    Temperature,
    check_temperature,
    present_temperature,
)


@_registry.register("loss")
class PairwiseLogisticLoss(RankingLoss):
    r"""Pairwise logistic loss (PairLog): each positive against each less relevant item.

    $$\ell(s, y) = \sum_{i,j} 1(y_i > y_j) \, w_{ij} \log\left(1 + e^{-(s_i - s_j) / T}\right)$$

    With item weights, a pair has the weight of its more relevant item, as in TF-Ranking.

    Label smoothing reverses a pair with the probability $\epsilon$: the loss f of the difference
    $d = s_i - s_j$ becomes $(1 - \epsilon) f(d) + \epsilon f(-d)$. Metrics still see the original
    labels.

    Source: Rank4Class, equation 2, with $\sigma = 1 / T$ and $w = 1$.

    Args:
        temperature: T > 0, one over the paper's $\sigma$: a number, a `TemperatureAnnealing` or a
            scalar `tf.Variable`, which gets no gradient.
        lambda_weights: `NDCGLambdaWeights`, for w; None means 1.
        label_smoothing: $\epsilon$, in [0, 0.5).
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0, or `label_smoothing` not in [0, 0.5).

    Example:
        >>> loss = PairwiseLogisticLoss()
        >>> float(loss([1], [[0.0, 0.0, 0.0]]))  # 2 log(2)
        1.3862943...
    """

    _item_weights = "formula"

    def __init__(
        self,
        temperature: Temperature = 1.0,
        lambda_weights: ops.NDCGLambdaWeights | None = None,
        label_smoothing: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.temperature = check_temperature(temperature)
        self.lambda_weights = check_lambda_weights(lambda_weights)
        self.label_smoothing = _checks.fraction_below("label_smoothing", label_smoothing, 0.5)

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        temperature = present_temperature(self.temperature, lists.dtype)
        return sum_over_pairs(
            lists,
            lambda difference: _softplus(difference / temperature),
            np.log(2.0),
            self.lambda_weights,
            self.label_smoothing,
        )


@tf.custom_gradient
def _softplus(x):
    """`log(1 + e^x)`, of one exponential and one logarithm for value and gradient.

    It takes less time than `tf.math.softplus`, under XLA two thirds of it.
    """
    sigmoid = tf.sigmoid(x)
    # log(1 - sigmoid(-|x|)), which is -log(1 + e^-|x|).
    log_rest = tf.math.log1p(-tf.minimum(sigmoid, 1 - sigmoid))
    return tf.nn.relu(x) - log_rest, lambda upstream: upstream * sigmoid
