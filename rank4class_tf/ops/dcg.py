"""Discounted cumulative gain, from ranks; ties in expectation."""

import numpy as np
import tensorflow as tf

from rank4class_tf.ops.ranks import mean_over_ties


def exponential_gain(relevance):
    """Gain `2**y - 1` of a label y.

    Example:
        >>> exponential_gain([0.0, 1.0, 2.0]).numpy()
        array([0., 1., 3.], dtype=float32)
    """
    return tf.math.expm1(tf.convert_to_tensor(relevance) * np.log(2.0))


def logarithmic_discount(rank):
    """Discount `1 / log2(1 + r)` of a rank r.

    Example:
        >>> logarithmic_discount([1.0, 3.0]).numpy()
        array([1. , 0.5], dtype=float32)
    """
    return np.log(2.0) / tf.math.log1p(tf.convert_to_tensor(rank))


_GAINS = {"exponential": exponential_gain, "linear": lambda relevance: relevance}
_DISCOUNTS = {"logarithmic": logarithmic_discount, "reciprocal": lambda rank: 1 / rank}


def get_gain(gain):
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


def get_discount(discount):
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
    if value in known:
        return known[value]
    raise ValueError(
        f"`{argument}` must be one of {sorted(known)} or callable. Received: {value!r}."
    )


def dcg_at_k(ranks, k=None, gain="exponential", discount="logarithmic"):
    r"""Discounted cumulative gain over the first k ranks.

    $$\sum_{i : \pi(i) \le k} g(y_i) \, d(\pi(i)), \qquad
    g(y) = 2^y - 1, \quad d(r) = \frac{1}{\log_2(1 + r)}$$

    Source: Järvelin & Kekäläinen 2002; Rank4Class, equation 1.

    Args:
        ranks: `Ranks`.
        k: positive integer, or None for all ranks.
        gain: `"exponential"`, `"linear"` or a function of float64 labels, 0 for 0.
        discount: `"logarithmic"`, `"reciprocal"` or a function of float64 ranks.

    Returns:
        `[batch]` float64.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[1]])
        >>> dcg_at_k(ranks).numpy()  # 1 / log2(1 + 3)
        array([0.5])
    """
    table = _discounts(ranks, k, discount)
    expected = mean_over_ties(table, ranks.above, ranks.tied)
    return tf.reduce_sum(get_gain(gain)(ranks.relevance) * expected, axis=-1)


def ndcg_at_k(ranks, k=None, gain="exponential", discount="logarithmic"):
    r"""Normalised discounted cumulative gain over the first k ranks.

    $$\frac{\mathrm{DCG@}k}{\mathrm{idealDCG@}k}$$

    The ideal DCG is that of the items in the order of their labels.

    Source: Järvelin & Kekäläinen 2002; Rank4Class, equation 1.

    Args:
        ranks: `Ranks`.
        k: positive integer, or None for all ranks.
        gain: `"exponential"`, `"linear"` or an increasing function of float64 labels, 0 for 0.
        discount: `"logarithmic"`, `"reciprocal"` or a decreasing function of float64 ranks.

    Returns:
        `[batch]` float64, in [0, 1]; 0 for a list without positives.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[1]])
        >>> ndcg_at_k(ranks, k=2).numpy()
        array([0.])
    """
    factors = _discounts(ranks, k, discount)
    factors = factors[: tf.shape(ranks.relevance)[1]]
    ideal, _ = tf.math.top_k(ranks.relevance, tf.shape(factors)[0])
    ideal = tf.reduce_sum(get_gain(gain)(ideal) * factors, axis=-1)
    return tf.math.divide_no_nan(dcg_at_k(ranks, k, gain, discount), ideal)


def _discounts(ranks, k, discount):
    size = ranks.max_items if k is None else k
    return get_discount(discount)(tf.range(1, size + 1, dtype=tf.float64))
