"""Compares second derivatives with differences of gradients."""

import numpy as np
import tensorflow as tf


def gradient_of(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(function(x))
    return tape.gradient(value, x)


def assert_second_derivatives(function, x, rng):
    """Checks the product of the Hessian of `sum(function(x))` and a random direction."""
    x, direction, step = tf.constant(x), tf.constant(rng.normal(size=x.shape)), 1e-5
    assert x.dtype == tf.float64
    with tf.GradientTape() as tape:
        tape.watch(x)
        slope = tf.reduce_sum(gradient_of(function, x) * direction)
    actual = tape.gradient(slope, x, unconnected_gradients="zero")
    above, below = (gradient_of(function, x + s * direction) for s in (step, -step))
    expected = (above - below).numpy() / (2 * step)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
