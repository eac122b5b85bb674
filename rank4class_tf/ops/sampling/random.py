"""Random numbers from integer hashes: the same in eager mode, in graphs and under XLA, and fast.

With the same seed, XLA's stateless operations draw other numbers than TensorFlow's, and on a CPU
they take a hundred times longer.
"""

import tensorflow as tf

from rank4class_tf._types import TensorLike

# Each half of a seed is a sum of hashes of six half words; these numbers make the six differ.
_SALT = [[(0x9E3779B9 * (6 * half + i + 1)) % 2**32 for i in range(6)] for half in range(2)]


def fold_in(seed: TensorLike, data: TensorLike) -> tf.Tensor:
    """A new seed from a seed and an integer.

    Args:
        seed: two integers, int64.
        data: scalar integer.

    Returns:
        Two int64, in [0, 2**32).
    """
    words = tf.concat([tf.cast(seed, tf.int64), tf.reshape(tf.cast(data, tf.int64), [1])], axis=0)
    halves = tf.concat([words, tf.bitwise.right_shift(words, tf.constant(32, tf.int64))], axis=0)
    # Changing one half word changes its hash, and so the sum.
    hashes = _mix(tf.cast(halves, tf.uint32) + tf.constant(_SALT, tf.uint32))
    return tf.cast(_mix(tf.reduce_sum(hashes, axis=1)), tf.int64)


def uniform(shape: TensorLike, seed: TensorLike, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Uniform draws from 2**23 evenly spaced values in (0, 1), symmetric about 1/2.

    Args:
        shape: of the result.
        seed: two integers, int64.
        dtype: floating type of at least 32 bits.
    """
    fractions = tf.bitwise.right_shift(bits(shape, seed), tf.constant(9, tf.uint32))
    # With the bits of 1 these are numbers in [1, 2). Subtracting 1 less half a step is exact.
    one = tf.constant(0x3F800000, tf.uint32)
    above_one = tf.bitcast(tf.bitwise.bitwise_or(fractions, one), tf.float32)
    return tf.cast(above_one - (1 - 2.0**-24), dtype)


def uniform_integers(shape: TensorLike, seed: TensorLike, limit: int) -> tf.Tensor:
    """Uniform draws from the integers in [0, limit).

    Args:
        shape: of the result.
        seed: two integers, int64.
        limit: an int in [1, 2**31).

    Returns:
        An int64 tensor of that shape.

    Example:
        >>> int(tf.reduce_max(uniform_integers([1000], seed=[1, 2], limit=3)))
        2
    """
    # The limit times a fraction of 64 bits, so that no integer is measurably more likely.
    words = bits(tf.concat([[2], tf.cast(shape, tf.int32)], axis=0), seed)
    high, low = tf.unstack(tf.cast(words, tf.int64), num=2)
    shift = tf.constant(32, tf.int64)
    carried = tf.bitwise.right_shift(low * limit, shift)
    return tf.bitwise.right_shift(high * limit + carried, shift)


def bits(shape: TensorLike, seed: TensorLike) -> tf.Tensor:
    """Words of 32 random bits, uint32; no two of a call are equal."""
    start, step = tf.unstack(tf.cast(fold_in(seed, 0), tf.uint32))
    step = tf.bitwise.bitwise_or(step, tf.constant(1, tf.uint32))
    # start + step * index, the index being row * width + column.
    shape = tf.cast(shape, tf.int32)
    width = tf.concat([[1], shape], axis=0)[-1]
    columns = tf.cast(tf.range(width), tf.uint32) * step + start
    rows = tf.cast(tf.range(tf.reduce_prod(shape[:-1])) * width, tf.uint32) * step
    return tf.reshape(_mix(rows[:, tf.newaxis] + columns), shape)


def _mix(x):
    """Wellons's hash of two rounds, a bijection in which each bit affects all bits."""
    for shift, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97)):
        x = _xor_shift(x, shift) * tf.constant(factor, tf.uint32)
    return _xor_shift(x, 15)


def _xor_shift(x, shift):
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint32)))
