"""Counting thresholds below scores, against NumPy's search."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf.ops import _excess

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
    count = tf.function(_excess._count_below, jit_compile=jit_compile)(thresholds, scores)
    for name, row, of_row, counted in zip(LISTS, thresholds, scores, count, strict=True):
        np.testing.assert_array_equal(counted, np.searchsorted(row, of_row), err_msg=name)
