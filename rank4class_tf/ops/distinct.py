"""Random subsets at a cost that does not depend on how many there are to choose from."""

import math

import tensorflow as tf

from rank4class_tf.ops import random


def sample_distinct(num_classes, size, seed, batch=1):
    r"""Draws subsets of $\{0, \dots, K - 1\}$ uniformly, without replacement.

    The first `size` different ones of a sequence of independent draws; they are in random order.
    Time and memory are O(batch size), whatever K is. All shapes are static, for XLA.

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
    if not 1 <= size <= num_classes:
        raise ValueError(f"`size` must be in [1, {num_classes}]. Received: size={size}.")
    if 2 * size >= num_classes:
        keys = tf.cast(random.bits([batch, num_classes], seed), tf.int64)
        return tf.argsort(keys, axis=-1)[:, :size]

    # The mean number of draws until `size` are different, and six standard deviations or more.
    mean = num_classes * math.log(num_classes / (num_classes - size))
    draws = math.ceil(mean + 6 * math.sqrt(mean) + 6)
    total = batch * draws
    row = tf.range(total, dtype=tf.int64) // draws

    def draw(attempt, *_):
        seed_of_attempt = random.fold_in(seed, attempt)
        ids = random.uniform_integers([total], seed_of_attempt, num_classes)
        # Of each draw: how many different ones stand before the first of its kind, over all rows,
        # then in its own row. Rows follow each other, so theirs are a range.
        _, order = tf.unique(row * num_classes + ids)
        order = tf.reshape(order, [batch, draws])
        order -= order[:, :1]
        position = tf.cast(row, tf.int32) * draws + tf.reshape(order, [-1])
        distinct = tf.math.unsorted_segment_max(ids, position, total)
        found = tf.reduce_min(tf.reduce_max(order, axis=-1)) + 1
        return attempt + 1, tf.reshape(distinct, [batch, draws])[:, :size], found

    # Once in some ten million times there are too few, and all are drawn anew.
    _, ids, _ = tf.while_loop(
        lambda attempt, _, found: found < size,
        draw,
        (tf.constant(0), tf.zeros([batch, size], tf.int64), tf.constant(0)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, size]), tf.TensorShape([])),
    )
    return tf.cast(ids, tf.int32)
