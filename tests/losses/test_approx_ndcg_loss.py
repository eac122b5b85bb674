"""ApproxNDCG against its definition."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses

from . import oracles
from .by_definition import (
    assert_by_definition,
    assert_by_definition_with_tied_scores,
    every_size,
)

LOSS = losses.ApproxNDCGLoss(temperature=0.3, reduction="none")


def oracle(s, y):
    return lambda x: oracles.approx_ndcg(x, y, temperature=0.3)


@every_size
def test_value_and_gradient_by_definition(n, grades, rng):
    assert_by_definition(LOSS, oracle, rng, n, grades)


def test_tied_scores():
    assert_by_definition_with_tied_scores(LOSS, oracle)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_finite_for_any_finite_scores(dtype):
    top = float(dtype.max)
    rows = [[top, -top, 0, 1, -1], [-top] * 5, [top] * 5, [top, 0, 0, 0, 0], [0, top, top, -top, 1]]
    scores = tf.cast(tf.constant(rows, tf.float32), dtype)
    for temperature in (1e-4, 0.1, 10.0):
        loss = losses.ApproxNDCGLoss(temperature=temperature, reduction="none")
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss([0] * 5, scores)
        gradient = tape.gradient(value, scores)
        assert np.isfinite(value).all() and np.isfinite(tf.cast(gradient, tf.float32)).all()
        assert ((-1 <= value) & (value < 0)).numpy().all()
