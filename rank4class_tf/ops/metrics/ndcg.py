"""Discounted cumulative gain: of exact ranks, with ties in expectation, and of soft ranks."""

import functools
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._tf.where import where
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.metrics.means import ranks_and_relevance
from rank4class_tf.ops.ranking.exact import (
    Ranks,
    mean_over_ties,
    num_counted,
    num_ranks,
    table_by_rank,
)


def exponential_gain(relevance: TensorLike) -> tf.Tensor:
    """Gain `2**y - 1` of a label y.

    Example:
        >>> exponential_gain([0.0, 1.0, 2.0]).numpy()
        array([0., 1., 3.], dtype=float32)
    """
    relevance = tf.convert_to_tensor(relevance)
    # Of the whole part and the rest apart, so that whole labels have exact gains.
    limit = math.frexp(relevance.dtype.max)[1]
    whole = tf.where(relevance > 0, tf.floor(tf.minimum(relevance, limit)), 0)
    powers = tf.constant(np.append(2.0 ** np.arange(limit), np.inf), relevance.dtype)
    power = tf.gather(powers, tf.cast(whole, tf.int32))
    rest = tf.math.expm1((relevance - whole) * np.log(2.0))
    return tf.where(tf.math.is_inf(power), power, power * rest + (power - 1))


def logarithmic_discount(rank: TensorLike) -> tf.Tensor:
    """Discount `1 / log2(1 + r)` of a rank r.

    Example:
        >>> logarithmic_discount([1.0, 3.0]).numpy()
        array([1. , 0.5], dtype=float32)
    """
    return np.log(2.0) / tf.math.log1p(tf.convert_to_tensor(rank))


_GAINS = {"exponential": exponential_gain, "linear": lambda relevance: relevance}
_DISCOUNTS = {"logarithmic": logarithmic_discount, "reciprocal": lambda rank: 1 / rank}


def get_gain(gain: str | Callable) -> Callable:
    """Returns a gain by name, or a function as it is.

    Args:
        gain: `"exponential"`, `"linear"` or a function of labels.

    Raises:
        ValueError: if it is none of these.

    Example:
        >>> get_gain("linear")(2.0)
        2.0
    """
    return _get("gain", _GAINS, gain)


def get_discount(discount: str | Callable) -> Callable:
    """Returns a discount by name, or a function as it is.

    Args:
        discount: `"logarithmic"`, `"reciprocal"` or a function of ranks.

    Raises:
        ValueError: if it is none of these.

    Example:
        >>> get_discount("reciprocal")(2.0)
        0.5
    """
    return _get("discount", _DISCOUNTS, discount)


def _get(argument, known, value):
    if callable(value):
        return value
    if isinstance(value, str) and value in known:
        return known[value]
    raise ValueError(
        f"`{argument}` must be one of {sorted(known)} or callable. Received: {value!r}."
    )


@_checks.arguments
def dcg(
    ranks: Ranks,
    k: int | None = None,
    gain: str | Callable = "exponential",
    discount: str | Callable = "logarithmic",
) -> tf.Tensor:
    r"""Discounted cumulative gain over the first k ranks.

    $$\sum_{i : \pi(i) \le k} g(y_i) \, d(\pi(i)), \qquad
    g(y) = 2^y - 1, \quad d(r) = \frac{1}{\log_2(1 + r)}$$

    Infinite for the exponential gain of a label from 1,024 on, 128 where ranks are float32.

    Source: Järvelin & Kekäläinen 2002; Rank4Class, equation 1.

    Args:
        ranks: `Ranks`.
        k: positive integer, or None for all ranks.
        gain: `"exponential"`, `"linear"` or a function of labels, 0 for 0.
        discount: `"logarithmic"`, `"reciprocal"` or a function of float64 ranks.

    Returns:
        `[batch]`.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[1]])
        >>> dcg(ranks).numpy()  # 1 / log2(1 + 3)
        array([0.5])
    """
    return _dcg(ranks, get_gain(gain)(ranks.relevance), _discounts(ranks, k, discount))


@_checks.arguments
def ndcg(
    ranks: Ranks,
    k: int | None = None,
    gain: str | Callable = "exponential",
    discount: str | Callable = "logarithmic",
) -> tf.Tensor:
    r"""Normalised discounted cumulative gain over the first k ranks.

    $$\frac{\mathrm{DCG@}k}{\mathrm{idealDCG@}k}$$

    The ideal DCG is that of the items in the order of their labels.

    Source: Järvelin & Kekäläinen 2002; Rank4Class, equation 1.

    Args:
        ranks: `Ranks`.
        k: positive integer, or None for all ranks.
        gain: `"exponential"`, `"linear"` or an increasing function of labels, 0 for 0.
        discount: `"logarithmic"`, `"reciprocal"` or a decreasing function of float64 ranks.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[1]])
        >>> ndcg(ranks, k=2).numpy()
        array([0.])
    """
    table = _discounts(ranks, k, discount)
    if ranks.relevance.shape[1] == 1 and gain in [*_GAINS]:  # It cancels; others may be 0.
        gains = best = tf.nn.relu(tf.sign(ranks.relevance))
    else:
        gains = _up_to_a_factor(gain, ranks.relevance)
        best = tf.math.top_k(gains, tf.minimum(num_ranks(table), tf.shape(gains)[1])).values
    return tf.math.divide_no_nan(_dcg(ranks, gains, table), _ideal(best, table))


def soft_ndcg(
    ranks: TensorLike,
    relevance: TensorLike,
    gain: str | Callable = "exponential",
    discount: str | Callable = "logarithmic",
) -> tf.Tensor:
    r"""Normalised discounted cumulative gain of any ranks of the positives, soft ones too.

    $$\frac{1}{\mathrm{idealDCG}} \sum_i g(y_i) \, d(\pi(i)), \qquad
    g(y) = 2^y - 1, \quad d(r) = \frac{1}{\log_2(1 + r)}$$

    Source: Rank4Class, equation 1.

    Args:
        ranks: `[batch, P]`, the rank of each positive, >= 1.
        relevance: `[batch, P]`, its label, 0 where padded.
        gain: `"exponential"`, `"linear"` or an increasing function of labels, 0 for 0.
        discount: `"logarithmic"`, `"reciprocal"` or a decreasing function of ranks.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> soft_ndcg([[3.0]], [[1.0]]).numpy()  # 1 / log2(1 + 3)
        array([0.5], dtype=float32)
    """
    ranks, relevance = ranks_and_relevance(ranks, relevance)
    discount = get_discount(discount)
    # What stands in a column without a positive may have no finite discount.
    ranks = where(relevance > 0, ranks, 1.0)
    if relevance.shape[1] == 1 and gain in [*_GAINS]:
        # The gain cancels, and the discount at 1 is rounded as the other is, so that the best is 1.
        share, best = tf.unstack(_tensor(discount(tf.stack([ranks, tf.ones_like(ranks)]))))
        share /= best
        return tf.squeeze(share * tf.sign(relevance), axis=1)  # A NaN stays one.
    gains = _up_to_a_factor(gain, relevance)
    total = tf.reduce_sum(gains * _tensor(discount(ranks)), axis=-1)
    return tf.math.divide_no_nan(total, ideal_dcg(gains, discount=discount))


def _tensor(discounts):
    if not tf.is_tensor(discounts):
        raise ValueError(
            "`discount` must return a tensor: what NumPy returns has no gradient. "
            f"Received: {type(discounts).__name__}."
        )
    return discounts


def _up_to_a_factor(gain, relevance):
    """The gains of labels, of each list up to a factor."""
    return relative_gain(relevance) if gain == "exponential" else get_gain(gain)(relevance)


def relative_gain(relevance: tf.Tensor) -> tf.Tensor:
    """`2**y - 1` of labels `[batch, P]`, up to a factor of each list that keeps it finite.

    For what gains cancel in. A list whose labels are at most 64 has the factor 1.
    """
    excess = tf.nn.relu(tf.reduce_max(relevance, axis=-1, keepdims=True) - 64)
    scaled = relevance - excess
    far = tf.exp(scaled * np.log(2.0)) - tf.exp(-excess * np.log(2.0))
    gains = tf.where(excess > 0, far, exponential_gain(scaled))
    return tf.where(relevance <= 0, tf.zeros_like(gains), gains)  # A NaN stays one.


def ideal_dcg(
    gains: tf.Tensor, top_k: int | None = None, discount: Callable = logarithmic_discount
) -> tf.Tensor:
    """Gains `[batch, P]` in their best order, discounted, over the first `top_k` ranks."""
    best = tf.sort(gains, axis=-1, direction="DESCENDING")[:, :top_k]
    return _ideal(best, discount(tf.range(1, tf.shape(best)[1] + 1, dtype=gains.dtype)))


def _ideal(best_gains, table):
    # No product of matrices, which some devices round to bfloat16.
    if isinstance(table, np.ndarray):
        table = table.astype(best_gains.dtype.as_numpy_dtype)
    table = tf.cast(table, best_gains.dtype)[: tf.shape(best_gains)[1]]
    return tf.reduce_sum(best_gains * table, axis=-1)


def _dcg(ranks, gains, table):
    return tf.reduce_sum(gains * mean_over_ties(table, ranks.above, ranks.tied), axis=-1)


def _discounts(ranks, k, discount):
    """`[R]` float64, the discounts of the ranks that count; see `table_by_rank`."""
    size = num_counted(ranks, k)
    # A table that is NumPy's may be kept; in a graph of TensorFlow 1 it is a tensor of that graph.
    may_keep = isinstance(size, int) and tf.compat.v1.executing_eagerly_outside_functions()
    if may_keep and discount in [*_DISCOUNTS]:
        return _known_discounts(discount, size)
    return table_by_rank(get_discount(discount), size)


@functools.lru_cache(maxsize=8)
def _known_discounts(discount, size):
    return table_by_rank(_DISCOUNTS[discount], size)
