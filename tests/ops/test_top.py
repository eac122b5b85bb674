"""The largest scores of long lists, against sorting all."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf._tf import search


@pytest.mark.parametrize("jit_compile", [None, True], ids=["graph", "xla"])
@pytest.mark.parametrize("n", [1000, 1009, 40])
@pytest.mark.parametrize("k", [1, 3, 16])
def test_top_k(rng, n, k, jit_compile):
    """In blocks that fill the list, that do not, and in a list too short for blocks."""
    scores = rng.normal(size=(4, n)).astype(np.float32)
    scores[1] -= 100
    scores[2, 5:] = -np.inf
    scores[3] = 0
    values, columns = tf.function(lambda x: search.top_k(x, k), jit_compile=jit_compile)(scores)
    np.testing.assert_array_equal(values, -np.sort(-scores, axis=1)[:, :k])
    finite = np.isfinite(values)
    found = np.take_along_axis(scores, columns.numpy(), axis=1)
    np.testing.assert_array_equal(found[finite], values[finite])
    for row, is_finite in zip(columns.numpy(), finite, strict=True):
        assert len(set(row[is_finite])) == is_finite.sum()
