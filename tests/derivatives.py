"""Values and gradients of functions of scores."""

import tensorflow as tf


def value_and_gradient(function, x, upstream=None):
    """Tensors, so that a graph may hold it."""
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    return value, tape.gradient(value, x, output_gradients=upstream)


def gradient_of(function, x):
    return value_and_gradient(function, x)[1]
