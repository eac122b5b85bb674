"""Gains and margin functions at the edge of their dtype."""

import math

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import ops


@pytest.mark.parametrize(("dtype", "limit"), [(tf.float32, 128), (tf.float64, 1024)])
def test_gain_is_infinite_beyond_the_largest_number(dtype, limit):
    labels = tf.constant([limit - 1, limit - 0.5, limit, limit + 0.5, limit + 1], dtype)
    gains = ops.get_gain("exponential")(labels).numpy()
    assert np.isfinite(gains[:2]).all() and (gains[2:] == np.inf).all()


def test_exponential_goes_on_as_its_tangent():
    margins = tf.constant([-100.0], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(margins)
        values = ops.get_phi("exponential")(margins)
    np.testing.assert_allclose(values, [math.exp(80) * (1 + 20)], rtol=1e-12)
    np.testing.assert_allclose(tape.gradient(values, margins), [-math.exp(80)], rtol=1e-12)
