"""Gains of labels, discounts of ranks, and the best discounted sum."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf._types import TensorLike


def exponential_gain(relevance: TensorLike) -> tf.Tensor:
    """Gain `2**y - 1` of a label y.

    Example:
        >>> exponential_gain([0.0, 1.0, 2.0]).numpy()
        array([0., 1., 3.], dtype=float32)
    """
    relevance = tf.convert_to_tensor(relevance)
    # We treat the whole part and the rest separately, so that whole labels have exact gains.
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


GAINS: dict[str, Callable] = {
    "exponential": exponential_gain,
    "linear": lambda relevance: relevance,
}
DISCOUNTS: dict[str, Callable] = {
    "logarithmic": logarithmic_discount,
    "reciprocal": lambda rank: 1 / rank,
}


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
    return _get("gain", GAINS, gain)


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
    return _get("discount", DISCOUNTS, discount)


def _get(argument, known, value):
    if callable(value):
        return value
    if isinstance(value, str) and value in known:
        return known[value]
    raise ValueError(
        f"`{argument}` must be one of {sorted(known)} or callable. Received: {value!r}."
    )


def gain_cancels(gain: str | Callable, relevance: tf.Tensor) -> bool:
    """Whether the gain cancels in a ratio of sums: the only positive has a gain > 0."""
    return relevance.shape[1] == 1 and gain in [*GAINS]


def gains_up_to_a_factor(gain: str | Callable, relevance: tf.Tensor) -> tf.Tensor:
    """The gains of labels `[batch, P]`, those of each list up to a factor."""
    return relative_gain(relevance) if gain == "exponential" else get_gain(gain)(relevance)


def relative_gain(relevance: tf.Tensor) -> tf.Tensor:
    """`2**y - 1` of labels `[batch, P]`, up to a factor of each list that keeps it finite.

    Use it where the factor cancels. A list whose labels are at most 64 has the factor 1.
    """
    excess = tf.nn.relu(tf.reduce_max(relevance, axis=-1, keepdims=True) - 64)
    scaled = relevance - excess
    far = tf.exp(scaled * np.log(2.0)) - tf.exp(-excess * np.log(2.0))
    gains = tf.where(excess > 0, far, exponential_gain(scaled))
    return tf.where(relevance <= 0, tf.zeros_like(gains), gains)  # A NaN stays NaN.


def ideal_dcg(
    gains: tf.Tensor, top_k: int | None = None, discount: Callable = logarithmic_discount
) -> tf.Tensor:
    """Gains `[batch, P]` in their best order, discounted, over the first `top_k` ranks."""
    best = tf.sort(gains, axis=-1, direction="DESCENDING")[:, :top_k]
    return discounted_sum(best, discount(tf.range(1, tf.shape(best)[1] + 1, dtype=gains.dtype)))


def discounted_sum(best_gains: tf.Tensor, table: Any) -> tf.Tensor:
    """Sums gains `[batch, P]` in the order of their ranks, times the discounts of these ranks."""
    # Not a product of matrices, which some devices round to bfloat16.
    width = best_gains.shape[1]
    if isinstance(table, np.ndarray):
        table = table.astype(best_gains.dtype.as_numpy_dtype)[:width]
    table = tf.cast(table, best_gains.dtype)
    if width is None or table.shape[0] != width:
        table = table[: tf.shape(best_gains)[1]]
    return tf.reduce_sum(best_gains * table, axis=-1)
