"""Soft metrics for losses: functions of the positives' ranks, which may be any numbers.

Exact forms, in `rank4class_tf.metrics`, read `Ranks` and average over ties. Soft ones
return `[batch]`, in [0, 1] for the ranks of one list, and 0 for a list without
positives.
"""

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._tf.exact import as_floating
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import Array, Choice, Tensor, TensorPair, WithGradient
from rank4class_tf.ops.weights import (
    gain_cancels,
    gains_up_to_a_factor,
    get_discount,
    ideal_dcg,
)


def soft_ndcg(
    ranks: Array,
    relevance: Array,
    gain: Choice = "exponential",
    discount: Choice = "logarithmic",
) -> Tensor:
    r"""Normalised discounted cumulative gain of any ranks of positives, soft ones too.

    $$\frac{1}{\mathrm{idealDCG}} \sum_i g(y_i) \, d(\pi(i)), \qquad
    g(y) = 2^y - 1, \quad d(r) = \frac{1}{\log_2(1 + r)}$$

    Source: Rank4Class, equation 1.

    Args:
        ranks: `[batch, P]`, the rank of each positive, >= 1.
        relevance: `[batch, P]`, its label, 0 where padded.
        gain: `"exponential"`, `"linear"` or an increasing function of labels, 0 for 0.
        discount: `"logarithmic"`, `"reciprocal"` or a decreasing function of ranks.

    Example:
        >>> soft_ndcg([[3.0]], [[1.0]]).numpy()  # 1 / log2(1 + 3)
        array([0.5], dtype=float32)
    """
    ranks, relevance = _checked(ranks, relevance)
    discount = get_discount(discount)
    # A column without a positive may have a rank whose discount is not finite.
    ranks = tf.where(relevance > 0, ranks, 1.0)
    if gain_cancels(gain, relevance):  # In one column.
        # Both discounts are rounded alike, so that the best value is exactly 1.
        both = discount(tf.stack([ranks, tf.ones_like(ranks)]))
        discounts, best = tf.unstack(_require_tensor(both))
        share = discounts / best
        return tf.squeeze(share * tf.sign(relevance), axis=1)  # A NaN stays NaN.
    gains = gains_up_to_a_factor(gain, relevance)
    total = tf.reduce_sum(gains * _require_tensor(discount(ranks)), axis=-1)
    return tf.math.divide_no_nan(total, ideal_dcg(gains, discount=discount))


def soft_recall(
    ranks: Array, relevance: Array, k: int, temperature: float = 1.0
) -> Tensor:
    r"""Recall at k of any ranks of the positives, with a soft cutoff.

    $$\frac{1}{|Y|} \sum_{i \in Y} \sigma\left(\frac{k + 1/2 - \pi(i)}{\tau}\right)$$

    Source: Rax's approximate cutoffs.

    Args:
        ranks: `[batch, P]`, the rank of each positive, >= 1.
        relevance: `[batch, P]`, > 0 for a positive, 0 where padded; grades don't count.
        k: the cutoff, >= 1.
        temperature: $\tau$ > 0, in ranks: the smaller, the sharper the cutoff.

    Example:
        >>> soft_recall([[1.0, 8.0]], [[1.0, 1.0]], k=2, temperature=0.01).numpy()
        array([0.5], dtype=float32)
    """
    if not _checks.is_array(k):
        _checks.positive_int("k", k)
    _checks.positive_or_tensor("temperature", temperature)
    ranks, relevance = _checked(ranks, relevance)
    hits = tf.sigmoid((k + 0.5 - ranks) / temperature)
    return _weighted_mean(hits, tf.cast(relevance > 0, ranks.dtype))


def soft_reciprocal_rank(ranks: Array, relevance: Array) -> Tensor:
    r"""Reciprocal rank of any ranks of the positives, averaged over them.

    $$\frac{\sum_i y_i / \pi(i)}{\sum_i y_i}$$

    The arguments are those of `soft_ndcg`. For one positive it is the reciprocal rank
    of MRR.

    Source: ApproxMRR of TF-Ranking.

    Example:
        >>> soft_reciprocal_rank(
        ...     [[1.0, 4.0]], [[3.0, 1.0]]
        ... ).numpy()  # (3 / 1 + 1 / 4) / (3 + 1)
        array([0.8125], dtype=float32)
    """
    ranks, relevance = _checked(ranks, relevance)
    return _weighted_mean(_reciprocal(tf.where(relevance > 0, ranks, 1.0)), relevance)


def soft_average_precision(
    ranks: Array, ranks_among_positives: Array, relevance: Array
) -> Tensor:
    r"""Average precision of any ranks of the positives, soft ones too.

    $$\frac{1}{|Y|} \sum_{i \in Y} \frac{\pi_Y(i)}{\pi(i)}$$

    where $\pi_Y$ ranks the positives among themselves.

    Source: Qin et al. 2010, for soft ranks.

    Args:
        ranks: `[batch, P]`, the rank of each positive among all items, >= 1.
        ranks_among_positives: `[batch, P]`, its rank among the positives, >= 1.
        relevance: as in `soft_recall`.

    Example:
        >>> ap = soft_average_precision([[1.0, 4.0]], [[1.0, 2.0]], [[1.0, 1.0]])
        >>> ap.numpy()  # (1 + 2 / 4) / 2
        array([0.75], dtype=float32)
    """
    ranks, relevance = _checked(ranks, relevance)
    ranks, among = _checked(ranks, ranks_among_positives, "ranks_among_positives")
    precision = among / tf.where(relevance > 0, ranks, 1.0)
    return _weighted_mean(precision, tf.cast(relevance > 0, ranks.dtype))


def _checked(ranks: Array, values: Array, name: str = "relevance") -> TensorPair:
    ranks = as_floating(ranks)
    rule = f"`{name}` must have the shape of `ranks`."
    return ranks, same_sizes(tf.cast(values, ranks.dtype), ranks, rule, num_axes=2)


def _weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Weighted means of rows; 0 if all weights are 0."""
    weights = tf.cast(weights, values.dtype)
    if values.shape[1] == 1:
        # A NaN stays NaN.
        return tf.squeeze(tf.where(weights > 0, values, weights), axis=1)
    total = tf.reduce_sum(weights * values, axis=-1)
    return tf.math.divide_no_nan(total, tf.reduce_sum(weights, axis=-1))


@tf.custom_gradient
def _reciprocal(x: Tensor) -> WithGradient:
    """`tf.math.reciprocal`, correctly rounded, so that 1 gives 1 on any processor."""
    y = 1 / x
    return y, lambda upstream: tf.raw_ops.ReciprocalGrad(y=y, dy=upstream)


def _require_tensor(discounts: np.ndarray | Tensor) -> Tensor:
    rule = "`discount` must return a tensor, since a NumPy array has no gradient."
    _checks.require(tf.is_tensor(discounts), rule, type(discounts).__name__)
    return discounts
