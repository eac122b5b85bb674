"""Searching sorted rows, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf._tf.search import searchsorted


@pytest.mark.parametrize("route", ["eager", "xla", "any shape"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 100])
def test_as_numpy(rng, n, side, route):
    rising = np.sort(rng.integers(0, 12, size=(3, n)), axis=1).astype(np.float32)
    rising[0, -1] = np.inf
    values = np.concatenate(
        [rng.integers(-1, 13, size=(3, 30)), np.tile([np.inf, -np.inf], (3, 1))], axis=1
    ).astype(np.float32)

    def search(rising, values):
        return searchsorted(rising, values, side)

    if route != "eager":
        signature = [tf.TensorSpec([None, None])] * 2 if route == "any shape" else None
        search = tf.function(search, signature, jit_compile=route == "xla")
    expected = [np.searchsorted(*row, side=side) for row in zip(rising, values, strict=True)]
    np.testing.assert_array_equal(search(rising, values), expected)
