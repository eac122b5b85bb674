"""Items of each list by their places."""

import tensorflow as tf


def gather(values, places):
    """`tf.gather(values, places, batch_dims=1)`, also differentiable for a batch of no lists.

    Args:
        values: `[batch, n, ...]`.
        places: integer `[batch, ...]`.
    """
    return tf.gather(_with_gradient_of_its_shape(values), places, batch_dims=1)


@tf.custom_gradient
def _with_gradient_of_its_shape(values):
    """The same values; TensorFlow 2.15's gradient of a gather from `[0, n]` is `[0, 1]`."""
    return tf.identity(values), lambda upstream: tf.reshape(upstream, tf.shape(values))
