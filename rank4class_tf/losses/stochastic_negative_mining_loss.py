"""StochasticNegativeMiningLoss."""

import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._types import TensorLike
from rank4class_tf.losses._ordered import OrderedLoss
from rank4class_tf.losses._random import RandomRankingLoss


@_registry.register("loss")
class StochasticNegativeMiningLoss(OrderedLoss, RandomRankingLoss):
    r"""Ordered weighted loss of a random sample of the negatives, fresh at each step.

    From the N negatives of each list B are drawn uniformly without replacement. The positives of a
    list share the sample. With $v_{[j]}$ the j-th highest of its scores,
    $\vartheta_j = \theta_j N / B$ and `kind="pairwise"` or `"binary"`:

    $$\sum_y w_y \sum_{j=1}^B \vartheta_j \varphi(v_y - v_{[j]}), \qquad
    \sum_y w_y \Big( \varphi(v_y) + \sum_{j=1}^B \vartheta_j \varphi(-v_{[j]}) \Big)$$

    An unbiased estimate of the ordered weighted loss with the weights
    `N / B * ops.snm_expected_weights(rank_weights, B, N)`, which still bounds the 0/1 loss of
    the k best for `TopKWeights(k)`: its first k weights are 1/k, and all are 1 for
    `UniformWeights()`.

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large Output Spaces",
    algorithm 1 and lemma 2.

    Args:
        num_sampled: B, positive integer. A list that has no more negatives takes them all. If the
            number of scores makes every list do so, nothing is random, and the loss warns.
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
        leading = self.rank_weights.num_leading
        if leading is not None and leading > self.num_sampled:
            raise ValueError(
                f"`rank_weights` must have at most num_sampled={self.num_sampled} leading weights. "
                f"Received: {self.rank_weights!r}."
            )

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        n = lists.num_columns_of_items
        negatives = lists.negatives()
        if isinstance(n, int) and self.num_sampled >= n - 1:
            warnings.warn(
                f"num_sampled={self.num_sampled} is at least the number of negatives among {n} "
                "items, so the loss takes all of them and nothing is random.",
                stacklevel=2,
            )
            return lists.keep_nan(self.ordered_weighted_sum(negatives))
        sample = negatives.only(
            ops.sample_items(self.next_seed(), negatives.mask, self.num_sampled)
        )
        scale = tf.maximum(negatives.num_items / self.num_sampled, 1) if self.rescale else 1.0
        return lists.keep_nan(self.ordered_weighted_sum(sample, scale))
