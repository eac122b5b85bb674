"""Numbers that stand several times, told apart by sorting: `tf.unique` has no static shape."""

import tensorflow as tf

from rank4class_tf._tf.gather import scatter_add


def firsts(ids: tf.Tensor) -> tf.Tensor:
    """Which of the integers `[batch, n]` are the first of their kind in their row, booleans."""
    order, starts = _sorted(ids)
    return scatter_add(order, tf.cast(starts, tf.int32), tf.shape(ids)) > 0


def kinds(ids: tf.Tensor) -> tf.Tensor:
    """Numbers the different ones among the integers `[batch, n]` of each row, from 0 on, int32."""
    order, starts = _sorted(ids)
    kind = tf.cumsum(tf.cast(starts, tf.int32), axis=-1) - 1
    return scatter_add(order, kind, tf.shape(ids))


def _sorted(ids):
    """The columns in rising order of their ids, equals in their own; and where new ids start."""
    order = tf.argsort(ids, axis=-1, stable=True)
    rising = tf.gather(ids, order, batch_dims=1)
    first = tf.ones_like(rising[:, :1], tf.bool)
    return order, tf.concat([first, rising[:, 1:] != rising[:, :-1]], axis=1)
