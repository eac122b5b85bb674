"""Sums of many batches in two float32 parts, against float64."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf.metrics.sums import RunningSums


def as_float(parts):
    return sum(np.asarray(part, np.float64) for part in parts)


@pytest.mark.parametrize("size", [1e-3, 1.0, 5e4])
def test_ten_million_examples(jit_compile, size, rng):
    """Batches of one list that stand for many, and as many of some thousand lists."""
    sums = RunningSums(keras.metrics.Mean(), "sums", (2,))
    values = rng.uniform(size=(200, 2)).astype("float32") * np.float32(size)
    values[::7] /= 3000

    @tf.function(jit_compile=jit_compile)
    def add(values):
        for row in tf.range(200):
            sums.add(values[row : row + 1])

    for _ in range(50):
        add(tf.constant(values))
    expected = 50 * values.astype(np.float64).sum(axis=0)
    assert_allclose(as_float(np.array(sums._state)), expected, rtol=1e-10)
    # Two sums and their quotient, each rounded to float32.
    assert_allclose(sums.means(), [expected[0] / expected[1]], rtol=3 * 2**-24)


@pytest.mark.parametrize("name", ["mrr", "ndcg", "mean_rank", "macro"])
def test_a_metric_of_ten_million_lists(name, rng):
    """As 40 batches of lists that stand for 5,000 each, against a float64 metric."""

    def made(dtype):
        if name == "macro":
            return r4c.metrics.MacroAverage(
                r4c.metrics.NDCG(dtype=dtype), 30, dtype=dtype
            )
        return r4c.metrics.get(name, dtype=dtype)

    plain = made("float32")
    wide = made("float64")
    for _ in range(40):
        ids = rng.integers(0, 30, 50)
        scores = rng.permuted(np.tile(np.arange(30, dtype="float32"), (50, 1)), axis=1)
        for each in (plain, wide):
            each.update_state(ids, scores, 5000.0)
    assert plain.result().dtype == tf.float32
    assert_allclose(float(plain.result()), float(wide.result()), rtol=3 * 2**-24)
