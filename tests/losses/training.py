"""A step of training with a loss alone."""

import tensorflow as tf


def step(loss, ids, scores):
    """The value of a loss whose gradient is taken, as in training."""
    scores = tf.convert_to_tensor(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(ids, scores)
    tape.gradient(value, scores)
    return value
