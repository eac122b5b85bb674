"""Sums of many examples in float32 parts, against fractions and float64."""

import fractions
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf._tf import exact
from rank4class_tf.metrics.base import ExactSum

from .results import result

graph_and_xla = pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])


def bare(strategy=None, shape=(2,), dtype=None):
    with (strategy or tf.distribute.get_strategy()).scope():
        return ExactSum(keras.metrics.Mean(dtype=dtype), "sums", shape)


def as_float(parts):
    return sum(np.asarray(part, np.float64) for part in parts)


VALUES = {
    "uniform": lambda rng: rng.uniform(size=(1000, 2)),
    "wide": lambda rng: np.exp(rng.normal(scale=20, size=(1000, 2))),
    "both signs": lambda rng: rng.normal(size=(1000, 2)) * [1e30, 1e-20],
    "zeros": lambda rng: np.zeros([3, 2]),
    "one": lambda rng: np.array([[0.1, 3.4e38]]),
    "none": lambda rng: np.zeros([0, 2]),
}


@graph_and_xla
@pytest.mark.parametrize("name", VALUES)
def test_sums_of_a_batch(name, rng, jit_compile):
    values = VALUES[name](rng).astype(np.float32)
    parts = tf.function(exact.exact_sum, jit_compile=jit_compile)(tf.constant(values))
    expected = [float(sum(map(fractions.Fraction, map(float, column)))) for column in values.T]
    scale = np.abs(values.astype(np.float64)).sum(axis=0)
    np.testing.assert_array_less(np.abs(as_float(parts) - expected), 1e-10 * scale + 1e-44)


@graph_and_xla
def test_sums_of_groups(rng, jit_compile):
    """Each as exact as if it were alone, whatever the size of the others."""
    groups = rng.integers(-1, 4, 500)
    values = (rng.uniform(size=(500, 1)) * 1e10 ** groups[:, None]).astype(np.float32)
    compute = tf.function(exact.exact_sum, jit_compile=jit_compile)
    parts = compute(tf.constant(values), tf.constant(groups, tf.int32), 5)
    expected = [values[groups == g].astype(np.float64).sum() for g in range(5)]
    np.testing.assert_allclose(as_float(parts)[:, 0], expected, rtol=1e-10)


def test_a_value_that_is_not_finite_shows():
    high, _ = exact.exact_sum(tf.constant([[1.0, 1.0, 1.0], [2.0, np.nan, -np.inf]]))
    np.testing.assert_array_equal(np.isnan(high), [False, True, True])


@graph_and_xla
@pytest.mark.parametrize("size", [1e-3, 1.0, 5e4])
def test_ten_million_examples(jit_compile, size, rng):
    """Batches of one list that stand for many, and as many of some thousand lists."""
    sums, values = bare(), rng.uniform(size=(200, 2)).astype(np.float32) * np.float32(size)
    values[::7] /= 3000

    @tf.function(jit_compile=jit_compile)
    def add(values):
        for row in tf.range(200):
            sums.add(values[row : row + 1])

    for _ in range(50):
        add(tf.constant(values))
    expected = 50 * values.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(as_float(sums.parts()), expected, rtol=1e-12)
    mean = np.float32(expected[0] / expected[1])
    np.testing.assert_array_equal(sums.means(), [mean])


def test_a_float32_sum_would_be_wrong():
    """A total of 10**7 grows by ever the same: each step of float32 would be rounded alike."""
    sums = bare()
    row = np.array([[1 / 3, 1.0]], np.float32)
    many = np.repeat(row, 1000, axis=0) * 9999
    sums.add(tf.constant(many))

    @tf.function
    def add():
        for _ in tf.range(1000):
            sums.add(tf.constant(row))

    add()
    expected = many.astype(np.float64).sum(axis=0) + 1000 * row[0].astype(np.float64)
    plain = np.float32(1 / 3) * np.float32(9999000)
    for _ in range(1000):
        plain += np.float32(1 / 3)
    assert abs(plain / expected[0] - 1) > 1e-6
    np.testing.assert_allclose(as_float(sums.parts()), expected, rtol=1e-12)
    np.testing.assert_array_equal(sums.means(), [np.float32(expected[0] / 1e7)])


def test_parts_of_replicas_add_up(two_devices):
    sums = bare(two_devices)
    values = np.float32([[1 / 3, 1.0], [1e4 / 7, 3.0]])

    @tf.function
    def add(per_replica):
        two_devices.run(lambda x: sums.add(x), (per_replica,))

    data = tf.data.Dataset.from_tensor_slices(values).batch(2).repeat(20)
    for batch in two_devices.experimental_distribute_dataset(data):
        add(batch)
    expected = 20 * values.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(as_float(sums.parts()), expected, rtol=1e-10)


@pytest.mark.parametrize(
    "metric",
    [
        r4c.metrics.MRR,
        r4c.metrics.NDCG,
        r4c.metrics.MeanRank,
        lambda **kw: r4c.metrics.MacroAverage(r4c.metrics.NDCG(**kw), 30, **kw),
    ],
    ids=["mrr", "ndcg", "mean_rank", "macro"],
)
def test_a_metric_of_ten_million_lists(metric, rng):
    """As 40 batches of lists that stand for 5,000 each, against the metric in float64."""
    plain, wide = metric(), metric(dtype="float64")
    for _ in range(40):
        ids = rng.integers(0, 30, 50)
        scores = rng.permuted(np.tile(np.arange(30, dtype=np.float32), (50, 1)), axis=1)
        for each in (plain, wide):
            each.update_state(ids, scores, 5000.0)
    assert plain.result().dtype == tf.float32
    # A float32 in the neighbourhood of 0.3 is exact to 6e-8 of it.
    np.testing.assert_allclose(float(plain.result()), float(wide.result()), rtol=1e-7)


def test_values_of_lists_are_those_of_float64(rng):
    """With many items and ties, and several positives among them."""
    n = 2000
    scores = np.round(rng.normal(size=(64, n)), 1).astype(np.float32)
    scores[:4] = 0
    labels = (rng.uniform(size=(64, n)) < np.geomspace(1e-3, 0.3, 64)[:, None]).astype(np.float32)
    labels *= rng.integers(1, 4, labels.shape)
    labels[:, 7] = 1
    names = ["mrr", "hit_rate_at_5", "ndcg", "ndcg_at_10", "average_precision", "recall_at_300"]
    for name in (*names, "dcg"):
        made = (r4c.metrics.get(name, dtype=dtype) for dtype in ("float32", "float64"))
        results = [float(result(metric, labels, scores)) for metric in made]
        assert math.isclose(*results, rel_tol=3e-7), (name, results)
