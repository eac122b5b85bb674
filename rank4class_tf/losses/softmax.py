"""Softmax cross-entropy, class priors, and `log_total`, over less relevant items."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._counts import checked_counts, count_labels
from rank4class_tf._lists.dense import below
from rank4class_tf._lists.lists import LOWEST
from rank4class_tf._lists.positives import are_few
from rank4class_tf._tf import search
from rank4class_tf._tf.exact import divided, is_zero
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.raising import check
from rank4class_tf._types import Array, Changing, Tensor
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses.base import PositivesLoss, RankingLoss, present


def class_prior(
    labels: Array | None = None,
    num_classes: int | None = None,
    pseudo_count: float = 1.0,
    counts: Array | None = None,
) -> list[float]:
    r"""Returns each class's share of the labels, for `SoftmaxLoss(class_prior=...)`.

    $$\pi_i = \frac{c_i + a}{\sum_j (c_j + a)}$$

    with $c_i$ the number of labels of class i.

    Args:
        labels: class ids of any shape, ragged too, padded with -1 (where another class
            is padding, `tf.where(ids == ignore_class, -1, ids)`); relevance
            `[batch, n]`, whose labels > 0 count as one; or a dataset of
            `(features, labels)` and maybe weights.
        num_classes: positive integer.
        pseudo_count: a >= 0, added to each count so that a class without labels has a
            share.
        counts: how many labels each class has, integers >= 0, in place of the first two
            arguments.

    Example:
        >>> class_prior([0, 0, 1], num_classes=2, pseudo_count=0.0)
        [0.6666666666666666, 0.3333333333333333]
    """
    pseudo_count = _checks.non_negative_float("pseudo_count", pseudo_count)
    rule = "Either `labels` or `counts` must be given."
    _checks.require((counts is None) != (labels is None), rule, "both or none")
    if labels is not None:
        num_classes = _checks.positive_int("num_classes", num_classes)
        counts, _ = count_labels(labels, num_classes)

    counts = checked_counts(counts) + pseudo_count
    rule = "`pseudo_count` must be > 0 where a class has no labels."
    received = f"{pseudo_count=}, no labels of class {counts.argmin()}"
    _checks.require(bool(counts.all()), rule, received)
    return (counts / counts.sum()).tolist()


class SoftmaxOfRivalsLoss(RankingLoss):
    """Base of softmax losses with temperature; positives have less relevant rivals."""

    item_weights = "lists"  # Weights of items become one weight of their list.
    tunable = ("temperature",)  # What `try_out` tunes.

    def __init__(self, temperature: Changing = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.temperature = _checks.changing(
            "temperature", temperature, _checks.positive_float
        )

    @property
    def probabilities(self) -> Probabilities:
        """Softmax with temperature; for orders, the probabilities of first place."""
        return Probabilities(float(present(self.temperature, tf.float32)))


def log_total(lists: ops.Lists, temperature: Changing, with_ties: bool) -> Tensor:
    r"""$\log \sum_j e^{(s_j - s_i) / T}$ over less relevant items j, per positive i.

    `[batch, P]`, finite where padded. `with_ties` adds equally relevant items, and i
    itself.
    """
    temperature = present(temperature, lists.dtype)
    # Relative to the highest negative; where all items are positive, to a masked one: a
    # sum of 0.
    total, highest = lists.negatives().log_sum_exp(temperature)
    positives = tf.where(lists.is_positive, lists.positive_scores, highest)
    # The floor, an eighth of the dtype's lowest number, keeps `irrelevant` finite. The
    # maximum also keeps TensorFlow from adding `total` to `highest` first, which would
    # cost digits.
    floor = LOWEST[positives.dtype]
    irrelevant = total + tf.maximum((highest - positives) / temperature, floor)

    # Positives also compete with each other: in pairs if few, else in the order of
    # their labels.
    relevance = lists.relevance
    num_items = lists.max_items
    if not isinstance(num_items, int):
        num_items = None
    if are_few(lists.max_positives, num_items):
        # Columns without a positive get the largest label, and compete with nobody.
        rivals = tf.where(relevance > 0, relevance, relevance.dtype.max)
        is_less = tf.less_equal if with_ties else tf.less
        competes = is_less(rivals[:, tf.newaxis], relevance[..., tf.newaxis])
        differences = positives[:, tf.newaxis] - positives[..., tf.newaxis]
        terms = tf.where(competes, differences / temperature, floor)
        relevant = tf.reduce_logsumexp(terms, axis=-1)
    else:
        relevant = _by_sorting(positives, relevance, temperature, with_ties, num_items)
    return tf.reduce_logsumexp(tf.stack([irrelevant, relevant]), axis=0)


def cross_entropies(
    lists: ops.Lists, temperature: Tensor = 1.0, label_smoothing: Tensor = 0.0
) -> Tensor:
    r"""$-\log \mathrm{softmax}(s / T)_i$ for each positive i, `[batch, P]`.

    See `SoftmaxLoss`.
    """
    # Both the total and the scores are less the highest score.
    total, highest = lists.log_sum_exp(temperature, label_smoothing)
    scores = below(lists.positive_scores, highest)
    if not is_zero(label_smoothing):
        # `total` has the share of the mean score.
        scores = (1 - label_smoothing) * scores
    return total - divided(scores, temperature)  # Spares a division by 1.


def _by_sorting(
    positives: Tensor,
    relevance: Tensor,
    temperature: Array,
    with_ties: bool,
    most: int | None,
) -> Tensor:
    """`relevant` of `log_total`; lists have at most `most` items, None if unknown."""
    floor = LOWEST[positives.dtype]
    one_more = [[0, 0], [0, 1]]  # Padding by a column.

    # In falling order of relevance a sum over the less relevant is a suffix. It is
    # relative to the highest score of the suffix, so that higher scores before it cost
    # it no digits.
    falling_relevance, order = tf.math.top_k(relevance, tf.shape(relevance)[1])
    # These have a gradient.
    scores = gather(tf.where(relevance > 0, positives, floor), order)

    # The highest score and the sum of each suffix.
    highest = search.maxima(scores, most)
    decay = tf.exp((highest[:, 1:] - highest[:, :-1]) / temperature)
    terms = tf.exp((scores - highest) / temperature)
    sums = search.decaying_sums(terms, tf.pad(decay, one_more), most)

    # The last suffix has no items.
    highest = tf.pad(highest, one_more, constant_values=floor)
    sums = tf.pad(sums, one_more, constant_values=1)
    side = "left" if with_ties else "right"
    start = search.searchsorted(-falling_relevance, -relevance, side)
    relative = (tf.gather(highest, start, batch_dims=1) - positives) / temperature
    return tf.maximum(relative + tf.math.log(gather(sums, start)), floor)


@_registry.register("loss")
class SoftmaxLoss(PositivesLoss):
    r"""Softmax cross-entropy, the baseline, with every label form.

    $$\ell(s, y) = -\sum_i y_i \log \mathrm{softmax}(s / T)_i$$

    With weights $w_i$ of items each term is multiplied by $w_i$, as in TF-Ranking.

    Label smoothing replaces $y_i$, with weights $w_i y_i$, by
    $(1 - \epsilon) y_i + \epsilon \sum_j y_j / n$ over the n items that are not masked.
    Labels that mixup blends are relevance, such as 0.7 for one class and 0.3 for
    another. Logit adjustment, for rare classes, adds $\tau \log \pi_i$ to $s_i / T$ in
    the loss only: with $\tau = 1$ the model ranks the classes as if all were equally
    frequent.

    Source: Rank4Class, section 4.1; Szegedy et al. 2016, "Rethinking the Inception
    Architecture", for label smoothing; Menon et al. 2021, "Long-tail learning via logit
    adjustment", equation 10.

    Args:
        temperature: T > 0: a number or a scalar `tf.Variable`; 1 is plain softmax.
        label_smoothing: $\epsilon$, in [0, 1): a number or a scalar `tf.Variable`.
        class_prior: $\pi$, how frequent each class is in training, numbers > 0 that add
            up to 1, such as `losses.class_prior(labels, num_classes)`; None for no
            adjustment.
        prior_strength: $\tau \ge 0$; below 1, frequent classes gain and rare ones lose.
        positive_reduction: `"sum"` over the positives as above, or `"mean"`, which
            divides by $\sum_i y_i$, so that examples with many labels count as much as
            others.

    Example:
        >>> float(SoftmaxLoss()([1], [[0.0, 0.0]]))  # log(2)
        0.6931471...
    """

    item_weights = "formula"  # Weights of items multiply the terms.
    by_class_id = ("class_weight", "class_prior")  # They have an entry for each class.
    tunable = ("label_smoothing", "temperature")

    def __init__(
        self,
        temperature: Changing = 1.0,
        label_smoothing: Changing = 0.0,
        class_prior: Sequence[float] | None = None,
        prior_strength: float = 1.0,
        positive_reduction: str = "sum",
        **kwargs: Any,
    ):
        super().__init__(positive_reduction, **kwargs)
        # `compute` gets few positives as columns, faster in long lists, else labels of
        # all items.
        self.searches_positives = are_few(self.max_positives, None)
        self.temperature = _checks.changing(
            "temperature", temperature, _checks.positive_float
        )
        check = _checks.fraction_below(1)
        self.label_smoothing = _checks.changing(
            "label_smoothing", label_smoothing, check
        )
        if class_prior is not None:
            class_prior = _checks.one_for_each_class(
                "class_prior",
                class_prior,
                lambda prior: (prior > 0).all() and abs(prior.sum() - 1) <= 1e-3,
                "a number > 0 for each class, which add up to 1",
            )
        self.class_prior = class_prior
        self.prior_strength = _checks.non_negative_float(
            "prior_strength", prior_strength
        )

        is_right = class_prior is not None or prior_strength == 1
        rule = "`prior_strength` must be 1 where `class_prior` is None."
        _checks.require(is_right, rule, prior_strength)

    @property
    def probabilities(self) -> Probabilities | None:
        """Softmax at the present temperature; None with a prior, which scores omit."""
        if self.class_prior is not None:
            return None
        return Probabilities(float(present(self.temperature, tf.float32)))

    def compute(self, lists: ops.Lists) -> Tensor:
        temperature = present(self.temperature, lists.dtype, with_gradient=True)
        smoothing = present(self.label_smoothing, lists.dtype)
        if self.class_prior is not None:
            n = lists.max_items
            size = len(self.class_prior)
            fits = not isinstance(n, int) or n == size
            rule = (
                "`class_prior` must have a number for each class that `y_pred` scores."
            )
            _checks.require(fits, rule, f"{size} for {n} classes")

            # Equation 10 of Menon et al. The temperature applies to the scores only.
            log_prior = self.prior_strength * np.log([self.class_prior])
            shift = tf.constant(log_prior, lists.dtype)
            lists = lists.scaled(1 / temperature).shifted(shift)
            temperature = 1.0

        losses = cross_entropies(lists, temperature, smoothing)
        return self.reduced(lists, losses)  # Weighs by y_i.


@_registry.register("loss")
class UniqueSoftmaxLoss(SoftmaxOfRivalsLoss):
    r"""Softmax in which each positive competes only with less relevant items.

    $$\ell(s, y) = -\sum_i (2^{y_i} - 1) \log
    \frac{e^{s_i / T}}{e^{s_i / T} + \sum_{j : y_j < y_i} e^{s_j / T}}$$

    with the `temperature` T > 0, a number or a scalar `tf.Variable`, which gets no
    gradient. Weights of items become the weight $\sum_i w_i y_i / \sum_i y_i$ of the
    list, as in TF-Ranking. A gain too large for the dtype, as of a label of 128 for
    float32, raises, or under XLA makes the loss infinite or NaN.

    Source: Zhu & Klabjan 2020, "Listwise learning to rank by exploring unique ratings",
    as in TF-Ranking.

    Example:
        >>> float(UniqueSoftmaxLoss()([[1.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]]))  # 2 log(2)
        1.3862943...
    """

    def compute(self, lists: ops.Lists) -> Tensor:
        gains = ops.get_gain("exponential")(lists.relevance)
        rule = f"`relevance` must have a gain 2**y - 1 that {lists.dtype.name} holds"
        check(~tf.math.is_finite(gains), lists.relevance, rule)
        losses = tf.nn.softplus(log_total(lists, self.temperature, with_ties=False))
        return lists.sum_of_positives(gains * losses)


@_registry.register("loss")
class ListMLELoss(SoftmaxOfRivalsLoss):
    r"""Negative log-likelihood of the positives' order, the most relevant first.

    $$\ell(s, y) = -\sum_{i : y_i > 0} \log
    \frac{e^{s_i / T}}{\sum_{j : y_j \le y_i} e^{s_j / T}}$$

    Without ties among the labels this is the Plackett-Luce likelihood of ListMLE.
    Positives that tie compete with each other (Breslow's form), which bounds the loss
    of every order from above. The order of items with label 0 does not count. With one
    positive it is softmax cross-entropy. T and weights of items are as in
    `UniqueSoftmaxLoss`.

    Source: Xia et al. 2008, "Listwise approach to learning to rank"; Breslow 1974 for
    ties.

    Example:
        >>> loss = ListMLELoss()
        >>> float(loss([[1.0, 2.0, 0.0]], [[0.0, 0.0, 0.0]]))  # log(3) + log(2)
        1.7917594...
    """

    def compute(self, lists: ops.Lists) -> Tensor:
        losses = log_total(lists, self.temperature, with_ties=True)
        return lists.sum_of_positives(losses)
