"""Random numbers and random classes, the same in every mode."""

import functools
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._tf.gather import first_occurrences, scatter_add
from rank4class_tf._tf.seeds import fold_in, mix
from rank4class_tf._types import Array, Tensor

Integers: TypeAlias = Tensor | Sequence[int]


def uniform(
    shape: Integers,
    seed: Integers,
    dtype: tf.DType = tf.float32,
) -> Tensor:
    """Uniform draws from 2**23 evenly spaced values in (0, 1), symmetric about 1/2.

    The seed is two integers, the dtype a floating type of at least 32 bits.
    """
    fractions = tf.bitwise.right_shift(bits(shape, seed), tf.constant(9, tf.uint32))
    # With the bits of 1 these are numbers in [1, 2). Subtracting (1 - half a step) is
    # exact.
    one = tf.constant(0x3F800000, tf.uint32)
    above_one = tf.bitwise.bitwise_or(fractions, one)
    above_one = tf.bitcast(above_one, tf.float32)
    return tf.cast(above_one - (1 - 2.0**-24), dtype)


def uniform_integers(shape: Integers, seed: Integers, limit: int) -> Tensor:
    """Uniform int64 draws from [0, limit); the limit is an int in [1, 2**31)."""
    # We scale a fraction of 64 bits by the limit: no integer is measurably more likely.
    words = bits(tf.concat([[2], tf.cast(shape, tf.int32)], axis=0), seed)
    high, low = tf.unstack(tf.cast(words, tf.int64), num=2)
    shift = tf.constant(32, tf.int64)
    carried = tf.bitwise.right_shift(low * limit, shift)
    return tf.bitwise.right_shift(high * limit + carried, shift)


def bits(shape: Integers, seed: Integers) -> Tensor:
    """Words of 32 random bits, uint32; no two of a call are equal."""
    start, step = tf.unstack(tf.cast(fold_in(seed, 0), tf.uint32))
    # No word repeats where the step is odd.
    step = tf.bitwise.bitwise_or(step, tf.constant(1, tf.uint32))

    # start + step * index, the index being row * width + column.
    shape = tf.cast(shape, tf.int32)
    width = tf.concat([[1], shape], axis=0)[-1]
    columns = tf.cast(tf.range(width), tf.uint32) * step + start
    rows = tf.range(tf.reduce_prod(shape[:-1])) * width
    rows = tf.cast(rows, tf.uint32) * step
    return tf.reshape(mix(rows[:, tf.newaxis] + columns), shape)


def gumbel_noise(
    shape: Integers,
    seed: Integers,
    dtype: tf.DType = tf.float32,
) -> Tensor:
    r"""Independent draws of the standard Gumbel distribution, $-\log(-\log U)$.

    All are finite; their mean is Euler's constant, 0.577, their variance π² / 6. The
    seed is two integers, the dtype a floating type.

    Example:
        >>> round(float(tf.reduce_mean(gumbel_noise([10_000], seed=[1, 2]))), 1)
        0.6
    """
    dtype = tf.as_dtype(dtype)
    # In half precision draws would round to 0 and 1.
    wide = dtype if dtype.size > 2 else tf.float32
    draws = uniform(shape, seed, wide)
    return tf.cast(-tf.math.log(-tf.math.log(draws)), dtype)


def sample_distinct(
    num_classes: int, size: int, seed: Integers, batch: int | Tensor = 1
) -> Tensor:
    r"""Draws subsets of $\{0, \dots, K - 1\}$ uniformly, without replacement.

    A subset is the first `size` different numbers of a sequence of independent draws.
    The sequence is too short with a probability below 2**-64; then class 0 fills up the
    subset. Time and memory are O(batch size), whatever K is. All shapes are static, for
    XLA.

    Args:
        num_classes: K, an int in [1, 2**31).
        size: how many of them, an int in [1, K].
        seed: integer tensor `[2]`; the same seed gives the same subsets.
        batch: how many subsets, an int or a scalar tensor; the result is
            `[batch, size]` int32.

    Example:
        >>> ids = sample_distinct(3_000_000, 4, seed=[1, 2])
        >>> ids.shape, len(set(ids[0].numpy()))
        (TensorShape([1, 4]), 4)
    """
    _checks.positive_int("num_classes", num_classes)
    size = _checks.positive_int("size", size)
    rule = f"`size` must be in [1, {num_classes}]."
    _checks.require(size <= num_classes, rule, f"{size=}")

    if 2 * size >= num_classes:
        keys = bits([batch, num_classes], seed)
        # We flip the sign bit, since more devices sort signed integers; the order stays
        # the same.
        keys = tf.bitwise.bitwise_xor(keys, tf.constant(2**31, tf.uint32))
        order = tf.argsort(tf.bitcast(keys, tf.int32), axis=-1)
        return order[:, :size]

    num_draws = size + _most_repeats(num_classes, size)
    ids = uniform_integers([batch * num_draws], seed, num_classes)
    ids = tf.reshape(tf.cast(ids, tf.int32), [batch, num_draws])
    is_first = first_occurrences(ids)

    # We move each first occurrence to the left, over the repeats before it.
    target = tf.cumsum(tf.cast(is_first, tf.int32), axis=-1) - 1
    distinct = scatter_add(target, tf.where(is_first, ids, 0), tf.shape(ids))
    return distinct[:, :size]


def sample_items(seed: Integers, eligible: Array, num_sampled: int) -> Tensor:
    """Samples items of each list uniformly without replacement, in O(n log B).

    Args:
        seed: `[2]` integers; the same seed gives the same sample.
        eligible: `[batch, n]` booleans, the items to sample from.
        num_sampled: B, positive integer.

    Returns:
        `[batch, B]` int32 ids in random order; -1 after all of fewer than B eligible
        items.

    Example:
        >>> ids = sample_items([1, 2], [[True, False, True]], num_sampled=3)
        >>> sorted(ids[0].numpy().tolist())
        [-1, 0, 2]
    """
    _checks.positive_int("num_sampled", num_sampled)
    eligible = tf.convert_to_tensor(eligible)
    # Equal keys would favour the lower id; among 2**23 keys this bias cannot be
    # measured.
    keys = tf.where(eligible, uniform(tf.shape(eligible), seed), -1.0)
    missing = tf.maximum(num_sampled - tf.shape(keys)[1], 0)
    keys = tf.pad(keys, [[0, 0], [0, missing]], constant_values=-1.0)
    keys, ids = tf.math.top_k(keys, num_sampled)
    return tf.where(keys < 0, -1, ids)


@functools.lru_cache
def _most_repeats(num_classes: int, size: int) -> int:
    """A bound on repeats before `size` distinct draws; fails with chance < 2**-64."""
    # After i different draws, the next repeats one with probability i / K, so the
    # number of repeats before the next new one is geometric. This is Chernoff's bound
    # on the sum of these numbers.
    chances = np.arange(size) / num_classes
    highest = np.log(num_classes / max(size - 1, 1))
    bounds = []
    for exponent in highest * np.linspace(0.02, 0.98, 49):
        log_moment = np.sum(np.log1p(-chances) - np.log1p(-chances * np.exp(exponent)))
        bounds.append((log_moment + 64 * math.log(2)) / exponent)
    return math.ceil(min(bounds))
