"""Gathering and scattering by places, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf._tf import gather


@pytest.mark.parametrize("jit_compile", [None, True], ids=["graph", "xla"])
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
def test_values_and_gradient(shape, places, jit_compile, rng):
    places = np.asarray(places, np.int32)
    values = rng.normal(size=shape)
    rows = np.arange(shape[0]).reshape([-1] + [1] * (places.ndim - 1))
    expected = values[rows, places]
    upstream = rng.normal(size=expected.shape)

    @tf.function(jit_compile=jit_compile)
    def gathered(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            result = gather.gather(values, places)
        return result, tape.gradient(result, values, output_gradients=upstream)

    result, gradient = gathered(tf.constant(values))
    np.testing.assert_array_equal(result, expected)
    of_values = np.zeros(shape)
    np.add.at(of_values, (rows, places), upstream)
    np.testing.assert_allclose(gradient, of_values, rtol=1e-12)


def test_inverse(rng):
    order = np.argsort(rng.random((5, 9)), axis=1).astype(np.int32)
    np.testing.assert_array_equal(gather.inverse(order), np.argsort(order, axis=1))
