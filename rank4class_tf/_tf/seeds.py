"""Seeds from seeds, the same in every mode; `ops.sampling` makes the draws."""

import tensorflow as tf

from rank4class_tf._types import Array, Tensor

# A seed's halves are sums of hashes of six half words, told apart by multiples of 2**32
# / 1.618.
_SALT = [
    [(0x9E3779B9 * (6 * half + i + 1)) % 2**32 for i in range(6)] for half in range(2)
]


def fold_in(seed: Array, data: Array) -> Tensor:
    """A new seed, two int64 in [0, 2**32), from an integer seed `[2]` and scalar."""
    words = tf.concat(
        [tf.cast(seed, tf.int64), tf.reshape(tf.cast(data, tf.int64), [1])], axis=0
    )
    halves = tf.concat(
        [words, tf.bitwise.right_shift(words, tf.constant(32, tf.int64))], axis=0
    )
    # Changing one half word changes its hash, and so the sum.
    hashes = mix(tf.cast(halves, tf.uint32) + tf.constant(_SALT, tf.uint32))
    return tf.cast(mix(tf.reduce_sum(hashes, axis=1)), tf.int64)


def mix(x: Tensor) -> Tensor:
    """Wellons's hash of two rounds, a bijection in which each bit affects all bits."""
    for shift, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97)):
        x = _xor_shift(x, shift) * tf.constant(factor, tf.uint32)
    return _xor_shift(x, 15)


def _xor_shift(x: Tensor, shift: int) -> Tensor:
    return tf.bitwise.bitwise_xor(
        x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint32))
    )
