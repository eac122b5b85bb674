"""WARPLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._types import TensorLike
from rank4class_tf.losses._random import RandomRankingLoss


@_registry.register("loss")
class WARPLoss(RandomRankingLoss):
    r"""Hinge losses of the violating negatives, weighted by the rank of the positive.

    A negative violates y if it scores less than the margin $\eta$ below it. With $s_y$ the number
    of those and $L(s) = \sum_{j \le s} \theta_j$:

    $$\sum_y w_y \frac{L(s_y)}{s_y} \sum_i (v_i - v_y + \eta)_+$$

    With `num_trials` the rank is estimated as in the paper: negatives are drawn until one violates
    y; where the t-th of N is the first, the term is $w_y L(\lfloor N / t \rfloor)
    (v_i - v_y + \eta)_+$.

    Source: Weston, Bengio, Usunier 2011, "Wsabie: Scaling up to large vocabulary image annotation".

    Args:
        rank_weights: $\theta$: `PowerLawWeights(exponent)`, `TopKWeights(k)`, `UniformWeights()`,
            `StaircaseWeights(steps)` or a list of numbers. None means `PowerLawWeights(1.0)`.
        margin: $\eta$ > 0.
        num_trials: the most draws for a list, or None for the exact rank. Where none of the draws,
            or of the first N, violates a positive, that has no loss.
        seed: integer >= 0, of the draws. Losses with the same seed draw the same, step by step.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> loss = WARPLoss()
        >>> float(loss([0], [[1.0, 0.5, 0.75, 0.0]]))  # (1 + 1 / 2) / 2 * (0.5 + 0.75)
        0.9375
    """

    def __init__(
        self,
        rank_weights: ops.RankWeights | TensorLike | None = None,
        margin: float = 1.0,
        num_trials: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(seed=seed, **kwargs)
        self.rank_weights = ops.get_rank_weights(
            ops.PowerLawWeights(1.0) if rank_weights is None else rank_weights
        )
        self.margin = _checks.positive_float("margin", margin)
        if num_trials is not None:
            num_trials = _checks.positive_int("num_trials", num_trials)
        self.num_trials = num_trials

    @property
    def is_random(self) -> bool:
        """Whether the rank is estimated by draws."""
        return self.num_trials is not None

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        return ops.warp_loss(
            lists,
            rank_weights=self.rank_weights,
            margin=self.margin,
            num_trials=self.num_trials,
            seed=None if self.num_trials is None else self.next_seed(),
        )
