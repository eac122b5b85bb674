"""Margin functions."""

import math

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import ops


def test_exponential_goes_on_as_its_tangent():
    margins = tf.constant([-100.0], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(margins)
        values = ops.get_phi("exponential")(margins)
    np.testing.assert_allclose(values, [math.exp(80) * (1 + 20)], rtol=1e-12)
    np.testing.assert_allclose(tape.gradient(values, margins), [-math.exp(80)], rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.Ramp(0.0), "`width` must be a finite number > 0"),
        (lambda: ops.Scaled("hinge", 0.0), "`scale` must be a finite number > 0"),
        (lambda: ops.Scaled("cosine", 1.0), "`phi` must be one of .*Received: phi='cosine'"),
        (lambda: ops.get_phi("cosine"), "`phi` must be one of .*Received: 'cosine'"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
