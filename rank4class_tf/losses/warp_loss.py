"""WARPLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._tf.exact import violation
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.search import searchsorted
from rank4class_tf._types import TensorLike
from rank4class_tf.losses._random import RandomRankingLoss


@_registry.register("loss")
class WARPLoss(RandomRankingLoss):
    r"""Hinge losses of the violating negatives, weighted by the rank of the positive.

    A negative i violates y if it scores less than the margin $\eta$ below it, $v_i > v_y - \eta$.
    With $s_y$ the number of those and $L(s) = \sum_{j \le s} \theta_j$:

    $$\sum_y w_y \frac{L(s_y)}{s_y} \sum_i (v_i - v_y + \eta)_+$$

    With `num_trials` the rank is estimated as in the paper: negatives are drawn uniformly, with
    replacement, until one violates y. Where the t-th of a list with N negatives is the first, the
    term of y is

    $$w_y \, L(\lfloor N / t \rfloor) \, (v_i - v_y + \eta)_+$$

    The positives of a list share the draws. The gradient takes the rank as a constant.

    Source: Weston, Bengio, Usunier 2011, "Wsabie: Scaling up to large vocabulary image annotation";
    Rankmax, section 3.3.

    Args:
        rank_weights: $\theta$: `PowerLawWeights(exponent)`, `TopKWeights(k)`, `UniformWeights()`,
            `StaircaseWeights(steps)` or a list of numbers. None means `PowerLawWeights(1.0)`.
        margin: $\eta$ > 0.
        num_trials: the most draws for a list, or None for the exact rank. A positive has
            no loss if no draw violates it, or none of the first N.
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
        negatives = lists.negatives()
        of_ranks = self.rank_weights.first(lists.num_columns_of_items, lists.dtype)
        of_ranks = tf.concat([tf.zeros([1], lists.dtype), tf.cumsum(of_ranks)], axis=0)
        if self.num_trials is None:
            losses = _exact(negatives, of_ranks, self.margin)
        else:
            losses = _sampled(negatives, of_ranks, self.margin, self.num_trials, self.next_seed())
        return lists.keep_nan(lists.sum_of_positives(lists.relevance * losses))


def _exact(negatives, of_ranks, margin):
    violators = negatives.constant().sum_over_items(
        lambda s, p: tf.cast(s - p > -margin, s.dtype), tends_to_zero=True
    )
    weight = tf.gather(of_ranks, tf.cast(violators, tf.int32))
    hinges = negatives.sum_over_items(lambda s, p: violation(s - p, margin), vanishes=True)
    return tf.math.divide_no_nan(weight, violators) * hinges


def _sampled(negatives, of_ranks, margin, num_trials, seed):
    up_to = tf.cumsum(tf.cast(negatives.mask, tf.int32), axis=-1)
    batch, n = tf.unstack(tf.shape(up_to))
    count = tf.cast(up_to[:, -1:], negatives.dtype)
    nth = tf.floor(ops.uniform([batch, num_trials], seed, negatives.dtype) * count) + 1
    columns = searchsorted(up_to, tf.cast(nth, tf.int32))
    drawn = gather(negatives.scores, tf.minimum(columns, n - 1))

    highest_so_far = tf.stop_gradient(drawn)
    step = 1
    while step < num_trials:
        shifted = tf.pad(
            highest_so_far[:, :-step], [[0, 0], [step, 0]], constant_values=drawn.dtype.min
        )
        highest_so_far = tf.maximum(highest_so_far, shifted)
        step *= 2
    bounds = tf.stop_gradient(negatives.positive_scores) - margin
    first = searchsorted(highest_so_far, bounds, side="right")
    found = (first < num_trials) & (count > 0)
    first = tf.where(found, first, 0)
    rank = tf.floor(count / tf.cast(first + 1, count.dtype))
    violator = gather(drawn, first)
    hinges = violation(violator - negatives.positive_scores, margin)
    losses = tf.gather(of_ranks, tf.cast(rank, tf.int32)) * hinges
    return tf.where(found, losses, 0)
