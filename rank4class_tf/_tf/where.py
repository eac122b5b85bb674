"""`tf.where` in half the time."""

import tensorflow as tf

from rank4class_tf._types import TensorLike


def where(condition: tf.Tensor, x: tf.Tensor, other: TensorLike) -> tf.Tensor:
    """`tf.where`, but without broadcasting, which takes as long again, and with a short gradient.

    The gradient is one operation. TensorFlow's takes six where the batch size is not known, a large
    part of the time of a short list.

    Args:
        condition: booleans of the shape of x, or `[batch]`, for whole rows.
        x: a tensor.
        other: a number, or a tensor of the shape of x, which has no gradient.
    """

    @tf.custom_gradient
    def chosen(x):
        rest = tf.cast(other, x.dtype)
        if rest.shape.rank == 0:
            rest = tf.fill(tf.shape(x), rest)

        def gradient(upstream):
            return tf.raw_ops.Select(condition=condition, x=upstream, y=tf.zeros_like(upstream))

        return tf.raw_ops.Select(condition=condition, x=x, y=rest), gradient

    return chosen(x)
