"""Losses that weigh negatives by rank.

The weights of ranks and the functions of margins are in `ops.weights`.
"""

import warnings
from typing import Any, Self

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._tf import search
from rank4class_tf._tf.exact import as_dtype, violation
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.shapes import smaller
from rank4class_tf._types import Array, Changing, Choice, Function, Tensor
from rank4class_tf.losses.base import RandomRankingLoss, RankingLoss, present


class OrderedLoss(RankingLoss):
    """Base of losses with `kind`, `phi`, `rank_weights`; see `OrderedWeightedLoss`."""

    def __init__(
        self,
        kind: str = "pairwise",
        phi: Choice = "hinge",
        rank_weights: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Each negative against the positive, or each score against zero.
        self.kind = _checks.one_of("kind", kind, ("pairwise", "binary"))

        ops.get_phi(phi)
        self.phi: Any = phi

        if rank_weights is None:
            rank_weights = ops.TopKWeights(1)
        self.rank_weights = ops.get_rank_weights(rank_weights)

    def ordered_weighted_sum(self, negatives: ops.Lists, scale: Array = 1.0) -> Tensor:
        """The loss of positives against all items `[batch]`; `scale` scales weights."""
        scale = as_dtype(scale, negatives.dtype)
        relevance = negatives.relevance

        if self.kind == "pairwise":
            losses = self._weighted_sum(self._sum_over_pairs, negatives)
            return scale * negatives.sum_of_positives(losses, relevance)

        def sum_over_negatives(lists: ops.Lists, f: Function) -> Tensor:
            return lists.sum(lambda s: f(-s), tends_to_zero=True)

        # The positives share the sum over the negatives, which does not depend on them.
        total = scale * self._weighted_sum(sum_over_negatives, negatives)

        losses = ops.get_phi(self.phi)(negatives.positive_scores)
        total_relevance = tf.reduce_sum(relevance, axis=-1)
        sum_of_positives = negatives.sum_of_positives(losses, relevance)
        return sum_of_positives + total_relevance * total

    def _sum_over_pairs(self, lists: ops.Lists, f: Function) -> Tensor:
        # (1 - a m)_+ is a times the violation of a margin 1 / a, which lists sum
        # faster.
        name = self.phi
        slope = 1.0
        if isinstance(name, ops.Scaled):
            slope = name.scale
            name = name.phi
        if f is ops.get_phi(self.phi) and name == "hinge":
            return slope * lists.sum_of_violations(1 / slope)
        return lists.sum_over_items(lambda s, p: f(p - s), tends_to_zero=True)

    def _weighted_sum(self, sum_over: Function, lists: ops.Lists) -> Tensor:
        r"""$\sum_j \theta_j \varphi(p - v_{[j]})$.

        `sum_over(lists, f)` is the sum of f(p - item).
        """
        phi = ops.get_phi(self.phi)
        rank_weights = self.rank_weights
        tail = rank_weights.tail
        num_leading = rank_weights.num_leading
        if num_leading == 0:
            return tail * sum_over(lists, phi)

        # All ranks get the tail. The leading ranks also get what exceeds it, so only
        # they are searched for.
        n = lists.max_items
        if num_leading is not None:
            n = smaller(n, num_leading)
        _, columns, _ = lists.top_k(n)
        highest = lists.only(columns)
        theta = rank_weights.leading(n, lists.dtype) - tail

        # Equal weights need no order among the highest.
        if rank_weights.listed is not None and len(set(rank_weights.listed)) == 1:
            total = theta[0] * sum_over(highest, phi)
        else:
            total = sum_over(highest, lambda margins: theta * phi(margins))
        if tail:
            total += tail * sum_over(lists, phi)
        return total


@_registry.register("loss")
class OrderedWeightedLoss(OrderedLoss):
    r"""A loss over negatives in the order of their scores, with a weight for each rank.

    With $v_{[j]}$ the j-th highest score of an item that is not positive,
    `kind="pairwise"` is the first and `kind="binary"` the second of

    $$\sum_y w_y \sum_j \theta_j \varphi(v_y - v_{[j]}), \qquad
    \sum_y w_y \Big( \varphi(v_y) + \sum_j \theta_j \varphi(-v_{[j]}) \Big)$$

    If weights are constant after the first h, the h highest scores are searched, and
    none are sorted. The loss is convex where $\varphi$ is and the weights do not rise.
    With `TopKWeights(k)` it bounds the 0/1 loss of the k best from above (twice that
    loss if binary, $\varphi$ convex).

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large
    Output Spaces", definitions 3 and 4, theorems 2 and 3.

    Args:
        kind: `"pairwise"` or `"binary"`.
        phi: `"hinge"`, `"squared_hinge"`, `"logistic"`, `"exponential"`, `"ramp"`,
            `ops.Ramp(width)`, `ops.Scaled(phi, scale)`, or an elementwise function of a
            tensor of margins.
        rank_weights: $\theta$: `TopKWeights(k)`, `UniformWeights()`,
            `PowerLawWeights(exponent)`, `StaircaseWeights(steps)` or a list of numbers,
            0 after its end. None means `TopKWeights(1)`.

    Example:
        >>> loss = OrderedWeightedLoss(rank_weights=[1.0, 0.5])
        >>> float(loss([0], [[1.0, 0.5, 0.0, 0.75]]))  # 1 * 0.75 + 0.5 * 0.5
        1.0
    """

    @property
    def num_mined(self) -> int | None:  # type: ignore[override]
        return None if self.rank_weights.tail else self.rank_weights.num_leading

    def compute(self, lists: ops.Lists) -> Tensor:
        losses = self.ordered_weighted_sum(lists.negatives())
        # The highest scores by themselves would not show a NaN.
        return lists.keep_nan(losses)

    @classmethod
    def crammer_singer(cls, **kwargs: Any) -> Self:
        """The multiclass SVM of Crammer and Singer (2001): only the top negative."""
        return cls("pairwise", "hinge", ops.TopKWeights(1), **kwargs)

    @classmethod
    def weston_watkins(cls, **kwargs: Any) -> Self:
        """The multiclass SVM of Weston and Watkins (1998): all negatives alike."""
        return cls("pairwise", "hinge", ops.UniformWeights(), **kwargs)

    @classmethod
    def lee(cls, **kwargs: Any) -> Self:
        """The multiclass SVM of Lee, Lin and Wahba (2004): each score against zero."""
        return cls("binary", "hinge", ops.UniformWeights(), **kwargs)

    @classmethod
    def top_k_svm(cls, k: int, **kwargs: Any) -> Self:
        """The top-k SVM of Lapin, Hein and Schiele (2015): mean over the k highest."""
        return cls("pairwise", "hinge", ops.TopKWeights(k), **kwargs)


@_registry.register("loss")
class StochasticNegativeMiningLoss(OrderedLoss, RandomRankingLoss):
    r"""Ordered weighted loss of a random sample of the negatives, fresh at each step.

    From the N negatives of each list B are drawn uniformly without replacement, for all
    positives of the list. The loss is that of `OrderedWeightedLoss` over the sample, or
    its binary form,

    $$\sum_y w_y \sum_{j=1}^B \vartheta_j \varphi(v_y - v_{[j]}), \qquad
    \vartheta_j = \theta_j N / B$$

    with the j-th highest score $v_{[j]}$. It is an unbiased estimate of that loss with
    the weights $\sum_i \vartheta_i \binom{j-1}{i-1} \binom{N-j}{B-i} / \binom{N}{B}$,
    which still bounds the 0/1 loss of the k best for `TopKWeights(k)`.

    Source: Reddi et al. 2019, algorithm 1 and lemma 2; see `OrderedWeightedLoss`.

    Args:
        num_sampled: B, positive integer. A list with fewer negatives takes them all. If
            every list must do so, nothing is random, and the loss warns.
        kind, phi: see `OrderedWeightedLoss`.
        rank_weights: $\theta$ of the ordered sample, with at most B leading weights.
            `UniformWeights()` is plain negative sampling; None, `TopKWeights(1)`, the
            paper's best.
        rescale: whether $\vartheta$ has the factor N / B. Without it `TopKWeights(k)`
            is the mean over the k mined negatives; in a binary loss they weigh as much
            as the positive.

    Example:
        >>> loss = StochasticNegativeMiningLoss(num_sampled=2, seed=1)
        >>> float(loss([0], [[1.0, 0.5, 0.5, 0.5]]))  # 3 / 2 * 0.5
        0.75
    """

    def __init__(
        self,
        num_sampled: int,
        kind: str = "pairwise",
        phi: Choice = "hinge",
        rank_weights: Any = None,
        rescale: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(
            kind=kind, phi=phi, rank_weights=rank_weights, seed=seed, **kwargs
        )
        self.num_sampled = _checks.positive_int("num_sampled", num_sampled)
        self.rescale = _checks.flag("rescale", rescale)

        leading = self.rank_weights.num_leading
        fits = leading is None or leading <= self.num_sampled
        rule = f"`rank_weights` must have at most {num_sampled=} leading weights."
        _checks.require(fits, rule, self.rank_weights)

    def compute(self, lists: ops.Lists) -> Tensor:
        n = lists.max_items
        negatives = lists.negatives()
        if isinstance(n, int) and self.num_sampled >= n - 1:
            message = (
                f"num_sampled={self.num_sampled} is at least the number of negatives "
                f"among {n} items, so the loss takes all of them and nothing is "
                "random."
            )
            warnings.warn(message, stacklevel=2)
            return lists.keep_nan(self.ordered_weighted_sum(negatives))

        mask = negatives.dense().mask
        places = ops.sample_items(lists.seed, mask, self.num_sampled)
        sample = negatives.only(places)
        scale: float | Tensor = 1.0
        if self.rescale:
            # The sample stands for all N negatives, by the factor N / B.
            scale = tf.maximum(negatives.num_items / self.num_sampled, 1)
        return lists.keep_nan(self.ordered_weighted_sum(sample, scale))


@_registry.register("loss")
class WARPLoss(RandomRankingLoss):
    r"""Hinge losses of the violating negatives, weighted by the rank of the positive.

    A negative i violates y if it scores less than the margin $\eta$ below it,
    $v_i > v_y - \eta$. With $s_y$ the number of those and
    $L(s) = \sum_{j \le s} \theta_j$:

    $$\sum_y w_y \frac{L(s_y)}{s_y} \sum_i (v_i - v_y + \eta)_+$$

    With `num_trials` the rank is estimated as in the paper: of N negatives some are
    drawn, with replacement. If the t-th is the first that violates y, the term of y is

    $$w_y \, L(\lfloor N / t \rfloor) \, (v_i - v_y + \eta)_+$$

    The positives of a list share the draws. The rank has no gradient.

    In float32 the rank of one of more than 16 positives may be wrong if both the
    positives and the negatives of a list spread over more than $2^{24}$ margins: a
    negative less than a margin below a positive, both that far below the highest, is
    then not counted. Use float64 for such scores.

    Source: Weston, Bengio, Usunier 2011, "Wsabie: Scaling up to large vocabulary image
    annotation"; Rankmax, section 3.3.

    Args:
        rank_weights: $\theta$, see `OrderedWeightedLoss`; None means
            `PowerLawWeights(1.0)`.
        margin: $\eta$ > 0, a number or a scalar `tf.Variable`, which gets no gradient.
        num_trials: the most draws for a list, or None for the exact rank. A positive
            has no loss if none of them, or of the first N, violates it.

    Example:
        >>> loss = WARPLoss()
        >>> float(loss([0], [[1.0, 0.5, 0.75, 0.0]]))  # (1 + 1/2) / 2 * (0.5 + 0.75)
        0.9375
    """

    tunable = ("margin",)

    def __init__(
        self,
        rank_weights: Any = None,
        margin: Changing = 1.0,
        num_trials: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(seed=seed, **kwargs)
        if rank_weights is None:
            rank_weights = ops.PowerLawWeights(1.0)
        self.rank_weights = ops.get_rank_weights(rank_weights)
        self.margin = _checks.changing("margin", margin, _checks.positive_float)
        self.num_trials = _checks.positive_int_or_none("num_trials", num_trials)

    @property
    def is_random(self) -> bool:  # type: ignore[override]
        return self.num_trials is not None

    def compute(self, lists: ops.Lists) -> Tensor:
        negatives = lists.negatives()
        margin = present(self.margin, lists.dtype)

        # L of 0, 1, ..., n violating negatives.
        weights = self.rank_weights.first(lists.max_items, lists.dtype)
        totals = tf.concat([tf.zeros([1], lists.dtype), tf.cumsum(weights)], axis=0)

        if self.num_trials is not None:
            losses = _sampled_losses(
                negatives, totals, margin, self.num_trials, lists.seed
            )
        else:
            hinges, num_violating = negatives.violations(margin)
            weight = tf.gather(totals, tf.cast(num_violating, tf.int32))
            losses = tf.math.divide_no_nan(weight, num_violating) * hinges
        losses = lists.sum_of_positives(losses, lists.relevance)
        return lists.keep_nan(losses)


def _sampled_losses(
    negatives: ops.Lists,
    totals: Tensor,
    margin: float | Tensor,
    num_trials: int,
    seed: Tensor,
) -> Tensor:
    negatives = negatives.dense()
    scores = negatives.positive_scores

    # Draws with replacement: the column of the j-th negative that is not masked, j
    # uniform.
    running_count = tf.cumsum(tf.cast(negatives.mask, tf.int32), axis=-1)
    batch, n = tf.unstack(tf.shape(running_count))
    count = tf.cast(running_count[:, -1:], negatives.dtype)
    draws = ops.uniform([batch, num_trials], seed, negatives.dtype)
    nth = tf.floor(draws * count) + 1
    columns = search.searchsorted(running_count, tf.cast(nth, tf.int32))
    drawn = gather(negatives.scores, tf.minimum(columns, n - 1))

    # The first draw that violates is where the running maximum passes the bound of a
    # positive.
    from_last = search.maxima(tf.reverse(drawn, [1]))
    highest_so_far = tf.reverse(from_last, [1])
    bounds = tf.stop_gradient(scores) - margin
    first = search.searchsorted(highest_so_far, bounds, side="right")
    is_violated = (first < num_trials) & (count > 0)
    first = tf.where(is_violated, first, 0)

    # The estimate of the rank, N over the number of draws, as in Wsabie.
    rank = tf.floor(count / tf.cast(first + 1, count.dtype))
    weight = tf.gather(totals, tf.cast(rank, tf.int32))
    hinges = violation(gather(drawn, first) - scores, margin)
    return tf.where(is_violated, weight * hinges, 0)
