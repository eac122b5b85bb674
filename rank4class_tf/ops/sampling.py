"""Samples of the items of a list."""

import tensorflow as tf

from rank4class_tf.ops import random


def sample_items(seed, eligible, num_sampled):
    """Samples items of each list uniformly without replacement, independently for each list.

    Time is O(n log B).

    Args:
        seed: `[2]` integers; the same seed gives the same sample.
        eligible: `[batch, n]` booleans, the items to sample from.
        num_sampled: B, positive integer.

    Returns:
        `[batch, B]` int32 ids of items in random order; -1 at the end of a list with fewer than B
        eligible items, which are then all there.

    Example:
        >>> sorted(sample_items([1, 2], [[True, False, True]], num_sampled=3).numpy()[0].tolist())
        [-1, 0, 2]
    """
    eligible = tf.convert_to_tensor(eligible)
    # Equal keys, in 2**23, would favour the lower id; the bias is beyond measure.
    keys = tf.where(eligible, random.uniform(tf.shape(eligible), seed), -1.0)
    missing = tf.maximum(num_sampled - tf.shape(keys)[1], 0)
    keys = tf.pad(keys, [[0, 0], [0, missing]], constant_values=-1.0)
    keys, ids = tf.math.top_k(keys, num_sampled)
    return tf.where(keys < 0, -1, ids)
