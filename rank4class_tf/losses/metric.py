"""The metrics of `ops.soft_metrics` as losses, with and without Gumbel noise."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _keras, _registry, ops
from rank4class_tf._lists.dense import DenseLists
from rank4class_tf._tf.loops import fold
from rank4class_tf._types import Changing, Choice, Tensor
from rank4class_tf.losses.base import (
    RandomRankingLoss,
    RankingLoss,
    UnsavedLayer,
    present,
)


class MetricLoss(UnsavedLayer, RankingLoss):
    r"""Base of losses that negate a metric of soft ranks, defined by a subclass.

    $$\ell(s, y) = -\mathrm{metric}(\pi(s), y), \qquad
    \pi(i) = 1 + \sum_{j \ne i} \mathrm{sigmoid}\left(\frac{s_j - s_i}{T}\right)$$

    or the ranks that a `ranker` gives. Weights of items become the weight
    $\sum_i w_i y_i / \sum_i y_i$ of the list, as in TF-Ranking. Add `GumbelNoise` for
    noise.

    Args:
        temperature: T > 0, a number or a scalar `tf.Variable`, which gets no gradient.
            A smaller one is closer to the metric, but gives far items smaller
            gradients.
        ranker: a sorter of `rank4class_tf.layers`, or any function or layer that takes
            scores `[batch, n]` and a boolean `mask` of that shape, and returns ranks, 1
            for the best. It takes the place of the sigmoid and its temperature.

    Example:
        >>> class ApproxRecall(MetricLoss):
        ...     def metric(self, ranks, lists):
        ...         return ops.soft_recall(ranks, lists.relevance, k=5)
        >>> float(ApproxRecall()([0], [[9.0, 0.0, 0.0]])) < -0.9
        True
    """

    item_weights = "lists"
    tunable = ("temperature",)

    def __init__(
        self, temperature: Changing = 0.1, ranker: Callable | None = None, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.temperature = _checks.changing(
            "temperature", temperature, _checks.positive_float
        )

        self.ranker = _checks.layer_or_none("ranker", ranker)
        # A ranker ranks all items, whatever the number of positives.
        self.searches_positives = ranker is None

    def metric(self, ranks: Tensor, lists: ops.Lists) -> Tensor:
        """The metric of each list, `[batch]`, higher for better.

        `ranks` are those of the positives, `[batch, P]`, anything where
        `lists.relevance` is 0.
        """
        raise NotImplementedError

    def ranks(self, lists: ops.Lists) -> Tensor:
        """Soft ranks of the positives, `[batch, P]`."""
        if self.ranker is None:
            temperature = present(self.temperature, lists.dtype)
            return ops.sigmoid_ranks(lists, temperature=temperature)
        lists = lists.dense()  # A sorter ranks whole lists.
        ranks = self.ranker(lists.scores, mask=lists.mask)
        return lists.at_positives(ranks)

    def ranks_among_positives(self, lists: ops.Lists) -> Tensor:
        """Soft ranks of the positives among themselves, `[batch, P]`."""
        if self.ranker is None:
            temperature = present(self.temperature, lists.dtype)
            return ops.sigmoid_ranks_among_positives(lists, temperature=temperature)
        return self.ranker(lists.positive_scores, mask=lists.is_positive)

    def compute(self, lists: ops.Lists) -> Tensor:
        metric = _keras.with_autograph_of_caller(self.metric)
        return -metric(self.ranks(lists), lists)


@_registry.register("loss")
class ApproxMRRLoss(MetricLoss):
    r"""Negative reciprocal rank with soft ranks, averaged over the positives.

    $$\ell(s, y) = -\frac{1}{\sum_i y_i} \sum_i \frac{y_i}{\pi(i)}$$

    `MetricLoss` defines the ranks $\pi$, the arguments, and the effect of weights of
    items.

    Source: Qin et al. 2010.

    Example:
        >>> float(ApproxMRRLoss()([1], [[9.0, 9.0, 0.0]]))  # 1 / (1 + 1/2)
        -0.6666666...
    """

    def metric(self, ranks: Tensor, lists: ops.Lists) -> Tensor:
        return ops.soft_reciprocal_rank(ranks, lists.relevance)


@_registry.register("loss")
class ApproxNDCGLoss(MetricLoss):
    r"""Negative NDCG with soft ranks: a smooth form of the metric itself.

    $$\ell(s, y) = -\frac{1}{\mathrm{idealDCG}}
    \sum_i \frac{2^{y_i} - 1}{\log_2(1 + \pi(i))}$$

    with the ranks $\pi$ of `MetricLoss`.

    Source: Qin et al. 2010; Rank4Class, section 4.1.

    Args:
        temperature, ranker: see `MetricLoss`, also for weights of items.
        gain, discount: as in `metrics.DCG`; functions must increase and decrease.

    Example:
        >>> float(ApproxNDCGLoss()([0], [[9.0, 0.0, 0.0]]))
        -1.0
    """

    def __init__(
        self,
        temperature: Changing = 0.1,
        ranker: Callable | None = None,
        gain: Choice = "exponential",
        discount: Choice = "logarithmic",
        **kwargs: Any,
    ):
        super().__init__(temperature, ranker, **kwargs)
        ops.get_gain(gain)
        ops.get_discount(discount)
        self.gain = gain
        self.discount = discount

    def metric(self, ranks: Tensor, lists: ops.Lists) -> Tensor:
        return ops.soft_ndcg(ranks, lists.relevance, self.gain, self.discount)


class GumbelNoise(RandomRankingLoss):
    r"""Mixin that averages a loss over fresh Gumbel noise; list it before the loss.

    $$\frac{1}{m} \sum_{t=1}^{m} \ell\left(\frac{s + G_t}{\beta}\right), \qquad
    G_{t,i} \sim \mathrm{Gumbel}(0, 1)$$

    The paper also takes the log-softmax of the noisy scores. That shifts all alike,
    which changes no loss of differences.

    Source: Bruch et al. 2020, "A stochastic treatment of learning to rank scoring
    functions".

    Args:
        num_samples: m >= 1. Time grows with m, memory does not.
        gumbel_temperature: $\beta$ > 0, which divides the noisy scores.

    Example:
        >>> from rank4class_tf.losses import ApproxMRRLoss
        >>> class GumbelMRR(GumbelNoise, ApproxMRRLoss):
        ...     pass
        >>> float(GumbelMRR(num_samples=4, seed=1)([0], [[99.0, 0.0, 0.0]]))
        -1.0
    """

    is_random = True  # Also before a loss that is not always random.

    def __init__(
        self, num_samples: int = 8, gumbel_temperature: float = 1.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.num_samples = _checks.positive_int("num_samples", num_samples)
        self.gumbel_temperature = _checks.positive_float(
            "gumbel_temperature", gumbel_temperature
        )

    def compute(self, lists: ops.Lists) -> Tensor:
        compute = _keras.with_autograph_of_caller(super().compute)
        scale = 1 / self.gumbel_temperature

        def sample_loss(lists: DenseLists, sample: Tensor) -> Tensor:
            shape = [tf.shape(lists.relevance)[0], lists.max_items]
            seed = ops.fold_in(lists.seed, sample)
            noisy = lists.shifted(ops.gumbel_noise(shape, seed, lists.dtype))
            if scale != 1:
                noisy = noisy.scaled(scale)
            return compute(noisy)

        # Gradients are summed sample by sample, so that memory stays that of one
        # sample.
        def mean(lists: DenseLists) -> tuple[Tensor, list[Tensor]]:
            def add_sample(sample: Tensor, total: Tensor, sums: list[Tensor]) -> list:
                value, gradients = lists.value_and_gradients(
                    lambda x: sample_loss(x, sample)
                )
                new_sums = [a + b for a, b in zip(sums, gradients, strict=True)]
                return [total + value, new_sums]

            zero = tf.zeros_like(lists.filled[:, 0])
            zeros = [tf.zeros_like(x) for x in lists.tensors]
            total, sums = fold(add_sample, self.num_samples, (zero, zeros))
            return total / self.num_samples, [x / self.num_samples for x in sums]

        return lists.dense().with_ready_gradients(mean)


@_registry.register("loss")
class GumbelApproxMRRLoss(GumbelNoise, ApproxMRRLoss):
    """`ApproxMRRLoss` with `GumbelNoise`, which define it and its arguments."""


@_registry.register("loss")
class GumbelApproxNDCGLoss(GumbelNoise, ApproxNDCGLoss):
    """`ApproxNDCGLoss` with `GumbelNoise`, which define it and its arguments.

    Source: Bruch et al. 2020; Rank4Class, section 4.1.

    Example:
        >>> loss = GumbelApproxNDCGLoss(seed=1)
        >>> float(loss([0], [[99.0, 0.0, 0.0]]))  # noise can't change this order
        -1.0
    """
