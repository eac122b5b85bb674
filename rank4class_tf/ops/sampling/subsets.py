"""Random subsets, of many classes or of the items of each list."""

import functools
import math

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._tf import repeats
from rank4class_tf._tf.gather import scatter_add
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.sampling import random


def sample_distinct(
    num_classes: int, size: int, seed: TensorLike, batch: int | tf.Tensor = 1
) -> tf.Tensor:
    r"""Draws subsets of $\{0, \dots, K - 1\}$ uniformly, without replacement.

    A subset is the first `size` different numbers of a sequence of independent draws, in random
    order. The sequence is too short with a probability below 2**-64, so for less than one of all
    seeds; then class 0 fills up the subset. Time and memory are O(batch size), whatever K is. All
    shapes are static, for XLA.

    Args:
        num_classes: K, an int in [1, 2**31).
        size: how many of them, an int in [1, K].
        seed: integer tensor `[2]`; the same seed gives the same subsets.
        batch: how many subsets, an int or a scalar tensor.

    Returns:
        `[batch, size]` int32.

    Raises:
        ValueError: if `size` is not in [1, K].

    Example:
        >>> ids = sample_distinct(3_000_000, 4, seed=[1, 2])
        >>> ids.shape, len(set(ids[0].numpy()))
        (TensorShape([1, 4]), 4)
    """
    _checks.positive_int("num_classes", num_classes)
    if _checks.positive_int("size", size) > num_classes:
        raise ValueError(f"`size` must be in [1, {num_classes}]. Received: size={size}.")
    if 2 * size >= num_classes:
        # We flip the sign bit, since more devices sort signed integers; the order stays the same.
        sign = tf.constant(2**31, tf.uint32)
        keys = tf.bitwise.bitwise_xor(random.bits([batch, num_classes], seed), sign)
        return tf.argsort(tf.bitcast(keys, tf.int32), axis=-1)[:, :size]

    draws = int(size) + _most_repeats(num_classes, size)
    total = batch * draws
    ids = tf.cast(random.uniform_integers([total], seed, num_classes), tf.int32)
    ids = tf.reshape(ids, [batch, draws])
    first = repeats.firsts(ids)
    # We move each first occurrence to the left, over the repeats before it.
    column = tf.cumsum(tf.cast(first, tf.int32), axis=-1) - 1
    return scatter_add(column, tf.where(first, ids, 0), tf.shape(ids))[:, :size]


def sample_items(seed: TensorLike, eligible: TensorLike, num_sampled: int) -> tf.Tensor:
    """Samples items of each list uniformly without replacement, independently for each list.

    Time is O(n log B).

    Args:
        seed: `[2]` integers; the same seed gives the same sample.
        eligible: `[batch, n]` booleans, the items to sample from.
        num_sampled: B, positive integer.

    Returns:
        `[batch, B]` int32 ids of items in random order. A list with fewer than B eligible items
        gives all of them, then -1.

    Example:
        >>> sorted(sample_items([1, 2], [[True, False, True]], num_sampled=3).numpy()[0].tolist())
        [-1, 0, 2]
    """
    _checks.positive_int("num_sampled", num_sampled)
    eligible = tf.convert_to_tensor(eligible)
    # Equal keys would favour the lower id; among 2**23 keys this bias cannot be measured.
    keys = tf.where(eligible, random.uniform(tf.shape(eligible), seed), -1.0)
    missing = tf.maximum(num_sampled - tf.shape(keys)[1], 0)
    keys = tf.pad(keys, [[0, 0], [0, missing]], constant_values=-1.0)
    keys, ids = tf.math.top_k(keys, num_sampled)
    return tf.where(keys < 0, -1, ids)


@functools.lru_cache
def _most_repeats(num_classes, size):
    """A number of repeats, until `size` draws are new, that is exceeded with less than 2**-64.

    After i different draws, the next repeats one with probability i / K, so the number of repeats
    before the next new one is geometric. This is Chernoff's bound on the sum of these numbers.
    """
    repeated = np.arange(size) / num_classes
    bounds = []
    for exponent in np.log(num_classes / max(size - 1, 1)) * np.linspace(0.02, 0.98, 49):
        log_moment = np.sum(np.log1p(-repeated) - np.log1p(-repeated * np.exp(exponent)))
        bounds.append((log_moment + 64 * math.log(2)) / exponent)
    return math.ceil(min(bounds))
