"""Ranks of tied items, against counts of all pairs."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf._tf.search import first_and_last_ranks


@pytest.mark.parametrize("jit_compile", [None, True], ids=["graph", "xla"])
@pytest.mark.parametrize("n", [1, 9, 40])
def test_against_all_pairs(rng, n, jit_compile):
    values = rng.integers(0, 6, size=(4, n)).astype(np.float32)
    values[0] = np.inf
    values[1, n // 2 :] = -np.inf
    below = values[:, np.newaxis, :] < values[:, :, np.newaxis]
    up_to = values[:, np.newaxis, :] <= values[:, :, np.newaxis]
    first, last = tf.function(first_and_last_ranks, jit_compile=jit_compile)(values)
    np.testing.assert_array_equal(first, below.sum(axis=-1) + 1)
    np.testing.assert_array_equal(last, up_to.sum(axis=-1))
