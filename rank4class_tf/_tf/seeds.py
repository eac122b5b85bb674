"""Seeds from seeds, the same in every mode; `ops.sampling` makes the draws."""

import numpy as np
import tensorflow as tf

from rank4class_tf._types import Array, Tensor

# A seed's halves are sums of hashes of six half words, told apart by multiples of
# 2**32 / 1.618.
_SALT = (np.arange(1, 13) * 0x9E3779B9 % 2**32).reshape(2, 6)


def fold_in(seed: Array, data: Array) -> Tensor:
    """A new seed, two int64 in [0, 2**32), from an integer seed `[2]` and scalar."""
    data = tf.reshape(tf.cast(data, tf.int64), [1])
    words = tf.concat([tf.cast(seed, tf.int64), data], axis=0)
    upper = tf.bitwise.right_shift(words, tf.constant(32, tf.int64))
    halves = tf.concat([words, upper], axis=0)

    # Changing one half word changes its hash, and so the sum.
    hashes = mix(tf.cast(halves, tf.uint32) + tf.constant(_SALT, tf.uint32))
    return tf.cast(mix(tf.reduce_sum(hashes, axis=1)), tf.int64)


def mix(x: Tensor) -> Tensor:
    """Wellons's hash of two rounds, a bijection in which each bit affects all bits."""
    x = _xor_shift(x, 16) * tf.constant(0x21F0AAAD, tf.uint32)
    x = _xor_shift(x, 15) * tf.constant(0xD35A2D97, tf.uint32)
    return _xor_shift(x, 15)


def _xor_shift(x: Tensor, shift: int) -> Tensor:
    shifted = tf.bitwise.right_shift(x, tf.constant(shift, tf.uint32))
    return tf.bitwise.bitwise_xor(x, shifted)
