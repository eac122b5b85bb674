"""Searching, counting, gathering and taking the top of rows, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf._lists import positives
from rank4class_tf._tf import gather, search

from ..derivatives import value_and_gradient

graph_and_xla = pytest.mark.parametrize("jit_compile", [None, True], ids=["graph", "xla"])


@pytest.mark.parametrize("route", ["eager", "xla", "any shape"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 100])
def test_searchsorted(rng, n, side, route):
    rising = np.sort(rng.integers(0, 12, size=(3, n)), axis=1).astype(np.float32)
    rising[0, -1] = np.inf
    values = np.concatenate(
        [rng.integers(-1, 13, size=(3, 30)), np.tile([np.inf, -np.inf], (3, 1))], axis=1
    ).astype(np.float32)

    def find(rising, values):
        return search.searchsorted(rising, values, side)

    if route != "eager":
        signature = [tf.TensorSpec([None, None])] * 2 if route == "any shape" else None
        find = tf.function(find, signature, jit_compile=route == "xla")
    expected = [np.searchsorted(*row, side=side) for row in zip(rising, values, strict=True)]
    np.testing.assert_array_equal(find(rising, values), expected)


LISTS = {
    "spread": lambda rng: (rng.normal(size=40), rng.normal(size=300)),
    "ties": lambda rng: (rng.integers(0, 5, 40), rng.integers(-2, 8, 300)),
    "all equal": lambda rng: (np.full(40, 2.5), np.array([2.5, 2.0, 3.0] * 100)),
    "an outlier": lambda rng: (np.append(rng.normal(size=39), -1e30), rng.normal(size=300)),
    "a cluster": lambda rng: (
        np.append(1 + 1e-6 * rng.normal(size=39), 0),
        1 + 1e-6 * rng.normal(size=300),
    ),
    "the whole range": lambda rng: (3e38 * rng.uniform(-1, 1, 40), 3e38 * rng.uniform(-1, 1, 300)),
    "infinite scores": lambda rng: (rng.normal(size=40), np.array([np.inf, -np.inf, 0] * 100)),
}


@graph_and_xla
def test_count_below(rng, jit_compile):
    pairs = [make(rng) for make in LISTS.values()]
    thresholds = np.sort(np.stack([t for t, _ in pairs]).astype(np.float32), axis=1)
    scores = np.stack([s for _, s in pairs]).astype(np.float32)
    count = tf.function(positives._count_below, jit_compile=jit_compile)(thresholds, scores)
    for name, row, of_row, counted in zip(LISTS, thresholds, scores, count, strict=True):
        np.testing.assert_array_equal(counted, np.searchsorted(row, of_row), err_msg=name)


@graph_and_xla
@pytest.mark.parametrize("num_levels", [1, 5, 40])
@pytest.mark.parametrize("offset", [0, 2.0**23])
def test_excess(rng, num_levels, offset, jit_compile):
    """Among scores and levels of which many are equal, against sums over all pairs."""
    scores = offset + np.append(rng.integers(-5, 6, size=(3, 99)), np.full((3, 1), -np.inf), axis=1)
    levels = offset + rng.integers(-5, 6, size=(3, num_levels))
    coefficients = rng.uniform(size=(3, num_levels))

    @tf.function(jit_compile=jit_compile)
    def compute(scores, levels, coefficients):
        with tf.GradientTape() as tape:
            tape.watch([scores, levels])
            sums = positives.excess(scores, levels, 1.5)
        return sums, *tape.gradient(sums, [scores, levels], coefficients)

    tensors = [tf.constant(x, tf.float32) for x in (scores, levels, coefficients)]
    sums, of_items, of_levels = compute(*tensors)
    above = scores[:, np.newaxis] - levels[..., np.newaxis] + 1.5
    shares = coefficients[..., np.newaxis] * (above > 0)
    np.testing.assert_allclose(sums, np.maximum(above, 0).sum(axis=2), rtol=1e-6)
    np.testing.assert_allclose(of_items, shares.sum(axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_levels, -shares.sum(axis=2), rtol=1e-5)


@graph_and_xla
@pytest.mark.parametrize(
    "shape, places",
    [
        ((2, 4), [[3, 0, 3], [1, 1, 1]]),
        ((2, 4), [3, 1]),
        ((2, 4, 5), [[3, 0, 3], [1, 1, 1]]),
        ((0, 4), np.zeros((0, 3), np.int32)),
        ((2, 4), [[3, 0, 3, 2] * 5, [1, 2, 1, 1] * 5]),
        ((2, 4, 5), [[3, 0, 3, 2] * 5, [1, 2, 1, 1] * 5]),
        ((0, 4), np.zeros((0, 20), np.int32)),
    ],
    ids=["items", "one item", "blocks", "no lists", "many", "many blocks", "many of no lists"],
)
def test_gather_and_its_gradient(shape, places, jit_compile, rng):
    places = np.asarray(places, np.int32)
    values = rng.normal(size=shape)
    rows = np.arange(shape[0]).reshape([-1] + [1] * (places.ndim - 1))
    expected = values[rows, places]
    upstream = rng.normal(size=expected.shape)

    @tf.function(jit_compile=jit_compile)
    def gathered(values):
        return value_and_gradient(lambda x: gather.gather(x, places), values, upstream)

    result, gradient = gathered(tf.constant(values))
    np.testing.assert_array_equal(result, expected)
    of_values = np.zeros(shape)
    np.add.at(of_values, (rows, places), upstream)
    np.testing.assert_allclose(gradient, of_values, rtol=1e-12)
