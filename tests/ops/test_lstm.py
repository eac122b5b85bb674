"""The LSTM against Keras's own layer."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf.ops.soft_ranks import LSTMWeights, bidirectional_lstm

UNITS, FEATURES, LENGTH = 3, 4, 7


def weights(rng):
    shapes = [(FEATURES, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,)]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def for_keras(values):
    """The same with Keras's order of the gates, i, f, g, o, and all of the bias in the weight."""
    *kernels, bias = values
    bias = bias + np.repeat([0, 1, 0, 0], UNITS)
    parts = [np.split(x, 4, axis=-1) for x in (*kernels, bias)]
    return [np.concatenate([i, f, g, o], axis=-1) for i, f, o, g in parts]


def by_keras(inputs, forward, backward):
    layer = keras.layers.Bidirectional(keras.layers.LSTM(UNITS, return_sequences=True))
    layer.build(inputs.shape)
    layer.set_weights([*for_keras(forward), *for_keras(backward)])
    return layer(inputs)


def test_values_and_gradient(rng):
    inputs = tf.constant(rng.standard_normal((2, LENGTH, FEATURES)), tf.float32)
    forward, backward = weights(rng), weights(rng)
    upstream = tf.constant(rng.standard_normal((2, LENGTH, 2 * UNITS)), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        own = bidirectional_lstm(inputs, LSTMWeights(*forward), LSTMWeights(*backward))
        expected = by_keras(inputs, forward, backward)
    np.testing.assert_allclose(own, expected, atol=1e-6)
    gradients = [tape.gradient(x, inputs, upstream) for x in (own, expected)]
    np.testing.assert_allclose(*gradients, atol=1e-5)


@pytest.mark.parametrize("jit", [False, True])
def test_masked_items_are_passed_over(rng, jit):
    inputs = rng.standard_normal((1, LENGTH, FEATURES)).astype(np.float32)
    mask = np.array([[False, True, True, False, False, True, False]])
    directions = [LSTMWeights(*weights(rng)) for _ in range(2)]
    run = tf.function(bidirectional_lstm, jit_compile=jit)
    found = run(tf.constant(inputs), *directions, tf.constant(mask)).numpy()
    shorter = bidirectional_lstm(tf.constant(inputs[:, mask[0]]), *directions)
    np.testing.assert_allclose(found[:, mask[0]], shorter, atol=1e-6)
