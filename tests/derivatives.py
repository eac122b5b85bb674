"""Values and gradients of functions."""

import tensorflow as tf


def value_and_gradient(function, x, upstream=None):
    """Tensors, so that a graph may hold it."""
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    return value, tape.gradient(value, x, output_gradients=upstream)


def with_gradients(function, *sources, upstream=None, unconnected="none"):
    """A function's value, and its gradients by tensors, variables or Keras weights."""
    sources = [
        x if isinstance(x, tf.Variable) else getattr(x, "value", x) for x in sources
    ]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        value = function()
    gradients = tape.gradient(value, sources, upstream, unconnected)
    return [tf.convert_to_tensor(x) for x in (value, *gradients)]


def gradient_of(function, x):
    return value_and_gradient(function, x)[1]
