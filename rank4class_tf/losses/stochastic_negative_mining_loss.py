"""StochasticNegativeMiningLoss."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._types import TensorLike
from rank4class_tf.losses._ordered import OrderedLoss
from rank4class_tf.losses._random import RandomRankingLoss
from rank4class_tf.ops.losses.owl.stochastic_negative_mining import check_weights_fit


@_registry.register("loss")
class StochasticNegativeMiningLoss(OrderedLoss, RandomRankingLoss):
    r"""Ordered weighted loss of a random sample of the negatives, fresh at each step.

    Of a list's N negatives B are drawn uniformly without replacement, independently for each list.
    With $v_{[j]}$ the j-th highest of their scores, $\vartheta_j = \theta_j N / B$ and
    `kind="pairwise"` or `"binary"`:

    $$\sum_y w_y \sum_{j=1}^B \vartheta_j \varphi(v_y - v_{[j]}), \qquad
    \sum_y w_y \Big( \varphi(v_y) + \sum_{j=1}^B \vartheta_j \varphi(-v_{[j]}) \Big)$$

    An unbiased estimate of the ordered weighted loss with the weights
    `N / B * ops.snm_expected_weights(rank_weights, B, N)`, which still bounds the 0/1 loss of
    the k best for `TopKWeights(k)`.

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large Output Spaces",
    algorithm 1 and lemma 2.

    Args:
        num_sampled: B, positive integer. A list with no more negatives takes them all; scores of
            which that holds for every list are no sampling, of which a warning tells.
        kind: `"pairwise"` or `"binary"`.
        phi: `"hinge"`, `"squared_hinge"`, `"logistic"`, `"exponential"`, `"ramp"`,
            `ops.Ramp(width)`, `ops.Scaled(phi, scale)`, or an elementwise function of a tensor of
            margins.
        rank_weights: $\theta$ of the ordered sample: `TopKWeights(k)`, `UniformWeights()` (plain
            negative sampling), `PowerLawWeights(exponent)`, `StaircaseWeights(steps)` or a list of
            numbers. None means `TopKWeights(1)`, the best in the paper.
        rescale: whether $\vartheta$ has the factor N / B. Without it `TopKWeights(k)` is the mean
            over the k mined negatives, and a binary loss weighs them as much as the positive.
        seed: integer >= 0. Losses with the same seed draw the same samples, step by step.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if an argument is out of range, or more weights lead than items are sampled.

    Example:
        >>> loss = StochasticNegativeMiningLoss(num_sampled=2, seed=1)
        >>> float(loss([0], [[1.0, 0.5, 0.5, 0.5]]))  # 3 / 2 * 0.5
        0.75
    """

    def __init__(
        self,
        num_sampled: int,
        kind: str = "pairwise",
        phi: str | Callable = "hinge",
        rank_weights: ops.RankWeights | TensorLike | None = None,
        rescale: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(kind=kind, phi=phi, rank_weights=rank_weights, seed=seed, **kwargs)
        self.num_sampled = _checks.positive_int("num_sampled", num_sampled)
        self.rescale = _checks.flag("rescale", rescale)
        check_weights_fit(self.rank_weights, self.num_sampled)

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        return ops.stochastic_negative_mining_loss(
            lists,
            num_sampled=self.num_sampled,
            rescale=self.rescale,
            seed=self.next_seed(),
            **self.formula,
        )
