"""Gradients of functions of scores."""

import tensorflow as tf


def gradient_of(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(function(x))
    return tape.gradient(value, x)
