"""Ranks that tied items share."""

import tensorflow as tf

from rank4class_tf._tf.gather import inverse, scatter_add


def first_and_last_ranks(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The first and the last rank, from 1 on, that each value has in rising order.

    Args:
        values: `[batch, n]`.

    Returns:
        Two int32 tensors `[batch, n]`; they differ where values are equal.
    """
    order = tf.argsort(values, axis=-1)
    ranked = tf.gather(values, order, batch_dims=1)
    starts = tf.concat([tf.zeros_like(ranked[:, :1], tf.bool), ranked[:, 1:] != ranked[:, :-1]], 1)
    group = tf.cumsum(tf.cast(starts, tf.int32), axis=-1)
    size = scatter_add(group, tf.ones_like(group), tf.shape(group))
    group = tf.gather(group, inverse(order), batch_dims=1)
    last = tf.gather(tf.cumsum(size, axis=-1), group, batch_dims=1)
    return last - tf.gather(size, group, batch_dims=1) + 1, last
