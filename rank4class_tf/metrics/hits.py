"""Metrics that count positives in the first k; the last ones favour rare classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._counts import count_labels
from rank4class_tf._lists.batch import Batch
from rank4class_tf._lists.labels import padded_ids
from rank4class_tf._types import Array, Cutoffs, Function, Tensor, TensorPair
from rank4class_tf.metrics.base import (
    CutoffMetric,
    ReadsBestPositive,
    ReadsLeadingRanks,
    ids_of_positives,
)
from rank4class_tf.ops import Ranks
from rank4class_tf.ops.ranks import (
    BestPositive,
    count_of_all,
    highest,
    mean_over_ties,
    num_counted,
    table_by_rank,
)
from rank4class_tf.ops.weights import discounted_sum


def hit_shares(ranks: Ranks | BestPositive, k: int | None) -> Tensor:
    r"""Each positive's probability to be in the first k, `[batch, P]`; None means all.

    $$\min\left(1, \frac{(k - a)_+}{m}\right)$$

    with $a$ items above and $m$ tied, the item itself counted.
    """
    if k is None:
        return tf.minimum(ranks.tied, 1)
    places = tf.maximum(k - ranks.above, 0)
    return tf.minimum(tf.math.divide_no_nan(places, ranks.tied), 1)


def hits(ranks: Ranks, k: int | None) -> Tensor:
    """Expected number of positives among the first k, `[batch]`."""
    return tf.reduce_sum(hit_shares(ranks, k), axis=-1)


@_registry.register("metric")
class TopKAccuracy(ReadsBestPositive, CutoffMetric):
    r"""Share of lists with a positive among the k highest scores.

    $$1(Y \cap \mathrm{Top}_k \ne \emptyset)$$

    Retrieval calls it the hit rate, `HitRate`. A tie counts by the probability that its
    random order puts a positive into the first k: with $a$ items above the best
    positive and $m$ tied with it, $q$ of them positive, and
    $r = \min(\max(k - a, 0), m)$ places left,

    $$1 - \binom{m - q}{r} \Big/ \binom{m}{r}
    = 1 - \prod_{i=0}^{q-1} \frac{m - r - i}{m - i}$$

    Source: Rank4Class, section 2.2.

    Args:
        k: how many of the highest scores count, >= 1, or a list of such cutoffs.

    Example:
        >>> metric = TopKAccuracy(k=1)
        >>> metric.update_state([0, 0], [[1.0, 0.0], [1.0, 1.0]])  # a hit and a tie
        >>> float(metric.result())
        0.75
    """

    _check_cutoff = staticmethod(_checks.positive_int)

    def __init__(
        self, k: int | Sequence[int] = 1, name: str | None = None, **kwargs: Any
    ):
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, best: BestPositive, k: int) -> Tensor:
        if isinstance(best.max_positives, int) and best.max_positives == 1:
            return hit_shares(best, k)
        # The product over i, as logarithms, is the probability of no positive in the r
        # places left.
        places = tf.clip_by_value(k - best.above, 0, best.tied)
        i = tf.cast(tf.range(best.max_positives), places.dtype)[tf.newaxis]
        remaining = tf.maximum(best.tied[:, tf.newaxis] - i, 1)
        share = tf.minimum(places[:, tf.newaxis] / remaining, 1)
        is_factor = i < best.num_positives[:, tf.newaxis]
        share = tf.where(is_factor, share, tf.zeros_like(share))
        logarithm = tf.reduce_sum(tf.math.log1p(-share), axis=-1)
        return -tf.math.expm1(logarithm)


_registry.register_name("metric", "hit_rate", TopKAccuracy)  # Its name in retrieval,
_registry.register_name("metric", "hits", TopKAccuracy)  # and in TF-Ranking.


@_registry.register("metric")
class PrecisionAtK(ReadsLeadingRanks, CutoffMetric):
    r"""Share of positives among the k highest scores.

    $$\frac{|Y \cap \mathrm{Top}_k|}{k}$$

    The divisor is k even if a list has fewer items; without a cutoff it is the number
    of items.

    Source: Manning, Raghavan & Schütze 2008, section 8.4.

    Example:
        >>> metric = PrecisionAtK(k=2)
        >>> metric.update_state([[0, 2]], [[0.0, 1.0, 2.0]])  # ranks 3 and 1
        >>> float(metric.result())
        0.5
    """

    def compute_at(self, ranks: Ranks, k: int | None) -> Tensor:
        divisor = tf.maximum(ranks.num_items, 1) if k is None else k
        return hits(ranks, k) / divisor


@_registry.register("metric")
class RecallAtK(ReadsLeadingRanks, CutoffMetric):
    r"""Share of the positives that are among the k highest scores.

    $$\frac{|Y \cap \mathrm{Top}_k|}{|Y|}$$

    Without a cutoff it is 1, except for scores that are NaN.

    Source: Manning, Raghavan & Schütze 2008, section 8.4.

    Args:
        average: `"samples"` for the mean over lists, which all count equally, or
            `"micro"`, hits of all lists over positives of all lists.

    Example:
        >>> metric = RecallAtK(k=[1, 3])
        >>> metric.update_state([[0, 2]], [[0.0, 1.0, 2.0]])  # ranks 3 and 1
        >>> {name: float(value) for name, value in metric.result().items()}
        {'recall_at_1': 0.5, 'recall_at_3': 1.0}
    """

    def __init__(self, k: Cutoffs = None, average: str = "samples", **kwargs: Any):
        self.average = _checks.one_of("average", average, ("samples", "micro"))
        super().__init__(k, **kwargs)

    def compute_at(self, ranks: Ranks, k: int | None) -> Tensor:
        return tf.math.divide_no_nan(hits(ranks, k), ranks.num_positives)

    def _formula(self) -> Function:
        compute = super()._formula()
        if self.average == "samples":
            return compute
        # The number of positives, as much as a list weighs, is a further value.
        return lambda ranks: [*compute(ranks), ranks.num_positives]

    def _values_and_weights(
        self, batch: Batch, dtype: tf.DType
    ) -> tuple[list[Tensor], Tensor]:
        values, weights = super()._values_and_weights(batch, dtype)
        if self.average == "samples":
            return values, weights
        *values, number = values
        return values, weights * number


@_registry.register("metric")
class AveragePrecisionAtK(ReadsLeadingRanks, CutoffMetric):
    r"""Average precision over the first k ranks; its mean over lists is the MAP.

    $$\frac{1}{\min(k, |Y|)} \sum_{r \le k} \mathrm{Precision@}r \cdot \mathrm{rel}(r)$$

    A positive with $a$ items above, $Q$ of them positive, and $m$ items tied, $q$ of
    them positive, itself counted in both, adds

    $$\frac{1}{m} \sum_{r=a+1}^{\min(a+m, k)}
    \frac{Q + 1 + (r - a - 1) \frac{q - 1}{m - 1}}{r}$$

    to the sum: each item that is tied with it and comes before it is one of the $q - 1$
    other positives with probability $(q - 1)/(m - 1)$.

    Weights of items multiply what positives add. The divisor is then the sum of the
    $\min(k, |Y|)$ highest weights of positives, or of all of them.

    Source: Manning, Raghavan & Schütze 2008, section 8.4; Rankmax, section 5.

    Args:
        over_all_positives: whether the divisor is $|Y|$, as in TF-Ranking and
            trec_eval: a list with more than k positives then cannot reach 1.

    Example:
        >>> metric = AveragePrecisionAtK()
        >>> metric.update_state([[0, 2]], [[0.0, 1.0, 2.0]])  # (1 / 1 + 2 / 3) / 2
        >>> round(float(metric.result()), 6)
        0.833333
    """

    def __init__(
        self,
        k: Cutoffs = None,
        name: str | None = None,
        over_all_positives: bool = False,
        **kwargs: Any,
    ):
        self.over_all_positives = _checks.flag("over_all_positives", over_all_positives)
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks: Ranks, k: int | None) -> Tensor:
        above = ranks.above
        tied = ranks.tied
        max_rank = num_counted(ranks, k)
        limit = tf.cast(max_rank, above.dtype)
        positives_above, positives_tied = _counts_of_positives(ranks)

        # The sum over r, split into the terms that fall as 1 / r and the constant one.
        slope = tf.math.divide_no_nan(positives_tied - 1, tied - 1)
        table = table_by_rank(lambda r: 1 / r, max_rank)
        harmonic = mean_over_ties(table, above, tied)
        places = tf.clip_by_value(limit - above, 0, tied)
        terms = (positives_above + 1 - slope * (above + 1)) * harmonic
        terms += slope * tf.math.divide_no_nan(places, tied)
        terms = tf.where(tied > 0, terms, tf.zeros_like(terms))

        weights = ranks.weights
        if weights is None:
            divisor = ranks.num_positives
            if not self.over_all_positives:
                divisor = tf.minimum(limit, divisor)
        else:
            terms *= weights
            if k is not None and not self.over_all_positives:
                weights = highest(weights, max_rank)
            divisor = tf.reduce_sum(weights, axis=-1)
        return tf.math.divide_no_nan(tf.reduce_sum(terms, axis=-1), divisor)


def _counts_of_positives(ranks: Ranks) -> TensorPair:
    """How many positives are above each positive, and tied with it, itself included."""
    # Ranks as scores, in the same order; a positive that is never a hit is left out.
    scores = tf.where(ranks.tied > 0, -ranks.above, float("nan"))
    above, tied = count_of_all(scores)
    return tf.cast(above, scores.dtype), tf.cast(tied, scores.dtype)


@_registry.register("metric")
class BPref(ReadsLeadingRanks, CutoffMetric):
    r"""Binary preference: how seldom items judged wrong rank above the right ones.

    $$\frac{1}{R} \sum_{p \in Y : \pi(p) \le k}
    \left(1 - \frac{\min(n_p, R)}{\min(R, N)}\right)$$

    with R positives, N items that were judged wrong, and $n_p$ of these above the
    positive p. A wrong item that is tied with p counts half. Mask items that nobody has
    judged. The metric needs scores: `RankedIds` do not tell which items were judged.

    Source: Buckley & Voorhees 2004, "Retrieval evaluation with incomplete information",
    in the form of trec_eval and TF-Ranking.

    Example:
        >>> metric = BPref()
        >>> metric.update_state([[1, 0, 1, -1, 0]], [[5.0, 4.0, 3.0, 2.0, 1.0]])
        >>> float(metric.result())  # ((1 - 0) + (1 - 1 / 2)) / 2
        0.75
    """

    def compute_at(self, ranks: Ranks, k: int | None) -> Tensor:
        rule = (
            "`y_pred` must hold scores for `BPref`, which counts the items that "
            "were judged."
        )
        _checks.require(ranks.num_items is not None, rule, "`RankedIds`")

        positives_above, positives_tied = _counts_of_positives(ranks)
        wrong_above = ranks.above - positives_above + (ranks.tied - positives_tied) / 2
        right = ranks.num_positives[:, tf.newaxis]
        wrong = ranks.num_items[:, tf.newaxis] - right
        wrong_above = tf.minimum(wrong_above, right)
        lost = tf.math.divide_no_nan(wrong_above, tf.minimum(right, wrong))

        total = tf.reduce_sum(hit_shares(ranks, k) * (1 - lost), axis=-1)
        return tf.math.divide_no_nan(total, ranks.num_positives)


def propensities(
    labels: Array | tf.data.Dataset, num_classes: int, a: float = 0.55, b: float = 1.5
) -> list[float]:
    r"""Returns each class's probability to be among the labels of an example it fits.

    $$p_l = \frac{1}{1 + C \, (N_l + B)^{-A}}, \qquad C = (\log N - 1) (B + 1)^A$$

    with N >= 3 examples of the training data, $N_l$ of which have the label l.

    Source: Jain, Prabhu & Varma 2016, "Extreme Multi-label Loss Functions for
    Recommendation, Tagging, Ranking & Other Missing Label Applications", section 5.

    Args:
        labels: class ids `[batch]` or `[batch, P]`, ragged too, padded with -1;
            relevance `[batch, n]`; or a dataset of `(features, labels)`.
        num_classes: positive integer.
        a: A > 0. The literature uses 0.5 for Wikipedia, 0.6 for Amazon, 0.55 for other
            data.
        b: B > 0. The literature uses 0.4 for Wikipedia, 2.6 for Amazon, 1.5 for other
            data.

    Example:
        >>> shares = propensities([[0, -1], [0, 1], [0, -1], [0, -1]], num_classes=2)
        >>> [round(share, 3) for share in shares]  # of 4 and of 1 label
        [0.8, 0.721]
    """
    num_classes = _checks.positive_int("num_classes", num_classes)
    a = _checks.positive_float("a", a)
    b = _checks.positive_float("b", b)
    counts, examples = count_labels(labels, num_classes)
    _checks.require(examples >= 3, "`labels` must hold at least 3 examples.", examples)
    c = (np.log(examples) - 1) * (b + 1) ** a
    shares = 1 / (1 + c * (counts + b) ** -a)
    return shares.tolist()


class PropensityScored(ReadsLeadingRanks):
    """Base of the ratios of the gains of all lists to the best possible ones."""

    bounds = (0.0, 1.0)

    def __init__(
        self, k: int, propensities: Array, name: str | None = None, **kwargs: Any
    ):
        self.k = _checks.positive_int("k", k)
        self.depth = self.k
        self.propensities = _checks.one_for_each_class(
            "propensities",
            propensities,
            lambda shares: ((shares > 0) & (shares <= 1)).all(),
            "a number in (0, 1] for each class",
        )
        family = _registry.snake_case(type(self).__name__.removesuffix("AtK"))
        super().__init__(name=name or f"{family}_at_{k}", **kwargs)

    def gains(self, ranks: Ranks) -> list[Tensor]:
        """The formula: `Ranks` of 1 / propensity -> gains and best gains, `[batch]`."""
        raise NotImplementedError

    def _formula(self) -> Function:
        return self.gains

    def _values_and_weights(
        self, batch: Batch, dtype: tf.DType
    ) -> tuple[list[Tensor], Tensor]:
        # The mean over all lists, weighted by their best possible gains, is the ratio
        # of the sums.
        (gains, best), weights = super()._values_and_weights(batch, dtype)
        weights *= tf.where(tf.math.is_nan(best), tf.ones_like(best), best)
        return [tf.math.divide_no_nan(gains, best)], weights

    def _with_gains(self, batch: Batch, dtype: tf.DType) -> Batch:
        """The positives weighted by 1 / propensity; a graded label counts as 1."""
        number = len(self.propensities)

        def inverse(class_ids: Tensor, relevance: Tensor, dtype: tf.DType) -> Tensor:
            table = tf.constant(1 / np.array(self.propensities), dtype)
            gains = tf.gather(table, tf.maximum(class_ids, 0))
            is_positive = (class_ids >= 0) & (relevance > 0)
            return tf.where(is_positive, gains, 0)

        labels = batch.given_labels
        if labels is not None:
            num_classes = labels.scores.shape[1]
            rule = "`propensities` must have one for each class."
            received = f"{number} of them and scores of {num_classes} classes"
            _checks.require(num_classes in (None, number), rule, received)
            relevance = inverse(labels.positives, labels.relevance, dtype)
            return batch.with_labels(labels._replace(relevance=relevance, highest=None))

        ranks = batch.ranks
        relevance = ranks.relevance
        # Under XLA, which cannot raise, ranks are NaN where an id has no propensity.
        class_ids, above = padded_ids(ids_of_positives(ranks), number, ranks.above)
        relevance = inverse(class_ids, relevance, relevance.dtype)
        ranks = ranks._replace(above=above, relevance=relevance)
        return batch._replace(given_ranks=ranks)


@_registry.register("metric")
class PropensityScoredNDCG(PropensityScored):
    r"""PSnDCG@k: NDCG in which rare labels, more likely to be missing, count more.

    $$\frac{\sum_i D_i(\pi_i)}{\sum_i \max_\pi D_i(\pi)}, \qquad
    D_i(\pi) = \sum_{l \in Y_i : \pi(l) \le k} \frac{1}{p_l \log_2(1 + \pi(l))} \Big/
    \sum_{r=1}^{\min(k, |Y_i|)} \frac{1}{\log_2(1 + r)}$$

    over all lists i with the positives $Y_i$, as in the tables of the Extreme
    Classification Repository. The value of a list is its own ratio, and its weight is
    the best possible gain. Graded relevance counts as 1.

    Source: Jain, Prabhu & Varma 2016, see `propensities`, section 4.

    Args:
        k: cutoff, >= 1.
        propensities: a number in (0, 1] for each class, from `metrics.propensities`.

    Example:
        >>> metric = PropensityScoredNDCG(k=3, propensities=[0.5, 0.5, 1.0])
        >>> metric.update_state([0], [[1.0, 3.0, 2.0]])  # rank 3: 1 / log2(1 + 3)
        >>> float(metric.result())
        0.5
    """

    def gains(self, ranks: Ranks) -> list[Tensor]:
        table = 1 / np.log2(1 + np.arange(1, self.k + 1, dtype=np.float64))
        discounts = mean_over_ties(table, ranks.above, ranks.tied)
        gain = tf.reduce_sum(ranks.relevance * discounts, axis=-1)
        best = discounted_sum(highest(ranks.relevance, self.k), table)

        # Both over the same ideal DCG of unweighted positives, as in xclib.
        ideals = np.concatenate([[1.0], np.cumsum(table)])
        number = tf.minimum(tf.cast(ranks.num_positives, tf.int32), self.k)
        ideal = tf.cast(tf.gather(ideals, number), gain.dtype)
        return [gain / ideal, best / ideal]


@_registry.register("metric")
class PropensityScoredPrecisionAtK(PropensityScored):
    r"""PSP@k: precision in which rare labels, more likely to be missing, count more.

    $$\frac{\sum_i \sum_{l \in Y_i \cap \mathrm{Top}_k} 1 / p_l}
    {\sum_i \max_{S \subseteq Y_i, |S| \le k} \sum_{l \in S} 1 / p_l}$$

    over all lists i with the positives $Y_i$. Source, arguments, and values and weights
    of lists are those of `PropensityScoredNDCG`.

    Example:
        >>> metric = PropensityScoredPrecisionAtK(k=1, propensities=[0.5, 0.25, 1.0])
        >>> metric.update_state([[0, 1]], [[3.0, 1.0, 2.0]])  # (1 / 0.5) / (1 / 0.25)
        >>> float(metric.result())
        0.5
    """

    def gains(self, ranks: Ranks) -> list[Tensor]:
        gain = tf.reduce_sum(hit_shares(ranks, self.k) * ranks.relevance, axis=-1)
        best = tf.reduce_sum(highest(ranks.relevance, self.k), axis=-1)
        return [gain, best]
