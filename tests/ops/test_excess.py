"""Counting thresholds below scores, against NumPy's search."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf._lists import positives

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


@pytest.mark.parametrize("jit_compile", [None, True], ids=["graph", "xla"])
def test_count_below(rng, jit_compile):
    pairs = [make(rng) for make in LISTS.values()]
    thresholds = np.sort(np.stack([t for t, _ in pairs]).astype(np.float32), axis=1)
    scores = np.stack([s for _, s in pairs]).astype(np.float32)
    count = tf.function(positives._count_below, jit_compile=jit_compile)(thresholds, scores)
    for name, row, of_row, counted in zip(LISTS, thresholds, scores, count, strict=True):
        np.testing.assert_array_equal(counted, np.searchsorted(row, of_row), err_msg=name)


@pytest.mark.parametrize("jit_compile", [None, True], ids=["graph", "xla"])
@pytest.mark.parametrize("num_levels", [1, 5, 40])
@pytest.mark.parametrize("offset", [0, 2.0**23])
def test_excess(rng, num_levels, offset, jit_compile):
    """Among scores and levels of which many are equal, against sums over all pairs."""
    scores = offset + np.append(rng.integers(-5, 6, size=(3, 99)), np.full((3, 1), -np.inf), axis=1)
    levels = offset + rng.integers(-5, 6, size=(3, num_levels))
    coefficients = rng.uniform(size=(3, num_levels))

    def compute(scores, levels, coefficients):
        with tf.GradientTape() as tape:
            tape.watch([scores, levels])
            sums = positives.excess(scores, levels, 1.5)
        of_items, of_levels = tape.gradient(sums, [scores, levels], coefficients)
        return sums, of_items, -of_levels

    compute = tf.function(compute, jit_compile=jit_compile)
    tensors = [tf.constant(x, tf.float32) for x in (scores, levels, coefficients)]
    sums, of_items, of_levels = compute(*tensors)
    above = scores[:, np.newaxis] - levels[..., np.newaxis] + 1.5
    shares = coefficients[..., np.newaxis] * (above > 0)
    np.testing.assert_allclose(sums, np.maximum(above, 0).sum(axis=2), rtol=1e-6)
    np.testing.assert_allclose(of_items, shares.sum(axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_levels, shares.sum(axis=2), rtol=1e-5)
