"""Gumbel noise."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import ops


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_it_is_standard_gumbel(dtype, jit_compile):
    size = 200_000
    draw = tf.function(
        lambda: ops.gumbel_noise([size], seed=[1, 2], dtype=dtype), jit_compile=jit_compile
    )
    noise = draw().numpy()
    assert np.isfinite(noise).all() and noise.dtype == dtype.as_numpy_dtype
    # P(G <= x) = exp(-exp(-x)); five standard errors.
    for x in (-1.5, 0.0, 0.5772, 2.0, 6.0):
        p = np.exp(-np.exp(-x))
        assert abs((noise <= x).mean() - p) < 5 * np.sqrt(p * (1 - p) / size)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_it_is_finite(dtype):
    noise = ops.gumbel_noise([100_000], [1, 2], dtype)
    assert noise.dtype == dtype and bool(tf.reduce_all(tf.math.is_finite(noise)))
