"""Differences that TensorFlow would compute inexactly in a graph."""

import tensorflow as tf

from rank4class_tf._types import TensorLike


def violation(difference: tf.Tensor, margin: TensorLike) -> tf.Tensor:
    """`max(0, difference + margin)`, exact however far from 0 the difference is taken.

    TensorFlow rewrites `(score - level) + margin` in a graph as `score + (margin - level)`, which
    loses the margin where the level is large. It leaves a maximum where it is.

    Args:
        difference: floating tensor.
        margin: > 0.
    """

    @tf.custom_gradient
    def violations(difference):
        value = tf.maximum(difference, -margin) + margin
        return value, lambda upstream: tf.raw_ops.ReluGrad(gradients=upstream, features=value)

    return violations(tf.convert_to_tensor(difference))
