"""Scores without their location and scale."""

import tensorflow as tf

# Smaller differences count as 0, since their inverse would overflow.
_TINY = 1e-30


def standardize(scores: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
    r"""Scores of each list with mean 0 and standard deviation 1.

    $$z_i = \frac{s_i - \bar s}{\sqrt{\frac{1}{n} \sum_j (s_j - \bar s)^2}}$$

    A list of equal scores becomes zeros; its gradient is that of $s_i - \bar s$.

    Args:
        scores: `[batch, d]`, float32 or float64, finite, within +-1e30.
        mask: booleans `[batch, d]`, False for a masked item; None if no item is masked.

    Returns:
        `[batch, d]`, of the dtype of the scores; 0 where masked.

    Example:
        >>> standardize(tf.constant([[1.0, 3.0], [5.0, 5.0]])).numpy()
        array([[-1.,  1.], [ 0.,  0.]], dtype=float32)
    """
    present = tf.ones_like(scores) if mask is None else tf.cast(mask, scores.dtype)
    count = tf.maximum(tf.reduce_sum(present, axis=1, keepdims=True), 1)
    lowest, highest = scores, scores
    if mask is not None:
        lowest = tf.where(mask, scores, scores.dtype.max)
        highest = tf.where(mask, scores, scores.dtype.min)
    lowest = tf.reduce_min(lowest, axis=1, keepdims=True)
    highest = tf.reduce_max(highest, axis=1, keepdims=True)
    half = highest / 2 - lowest / 2
    equal = half < _TINY
    # We first scale to [-1, 1], where squares neither overflow nor become 0. Neither the result nor
    # its gradient depends on this step.
    half = tf.stop_gradient(tf.where(equal, tf.ones_like(half), half))
    middle = tf.stop_gradient(highest / 2 + lowest / 2)
    near = present * (scores - middle) / half
    centred = present * (near - tf.reduce_sum(near, axis=1, keepdims=True) / count)
    variance = tf.reduce_sum(centred**2, axis=1, keepdims=True) / count
    return centred / tf.sqrt(tf.where(equal, tf.ones_like(variance), variance))
