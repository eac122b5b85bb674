"""Places in sorted lists."""

import tensorflow as tf

# Up to this many entries, comparing with all of them costs less.
_FEW = 16


def searchsorted(rising: tf.Tensor, values: tf.Tensor, side: str = "left") -> tf.Tensor:
    """As `tf.searchsorted`, which under XLA compares each value with all entries at once.

    Args:
        rising: `[batch, n]`, sorted, n >= 1.
        values: `[batch, P]`; the place of a NaN is any.
        side: "left" for how many entries are below the value, "right" for those up to it.

    Returns:
        `[batch, P]` int32.
    """
    if rising.shape[1] is not None and rising.shape[1] <= _FEW:
        return tf.searchsorted(rising, values, side)
    reached = {"left": tf.less, "right": tf.less_equal}[side]
    n = tf.shape(rising)[1]
    below = tf.zeros_like(values, tf.int32)
    for bit in reversed(range((rising.shape[1] or 2**30).bit_length())):
        further = below + 2**bit
        entry = tf.gather(rising, tf.minimum(further, n) - 1, batch_dims=1)
        below = tf.where((further <= n) & reached(entry, values), further, below)
    return below
