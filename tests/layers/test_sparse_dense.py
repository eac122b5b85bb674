"""SparseDense against a dense product."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf.layers import SparseDense


def test_value_and_gradient_are_those_of_a_dense_layer(rng):
    x = rng.normal(size=(4, 9)).astype(np.float32) * (rng.random((4, 9)) < 0.4)
    x[2] = 0
    layer = SparseDense(3)
    with tf.GradientTape() as tape:
        outputs = layer(tf.sparse.from_dense(x))
        upstream = rng.normal(size=(4, 3)).astype(np.float32)
        total = tf.reduce_sum(outputs * upstream)
    kernel, bias = (np.array(w, np.float64) for w in layer.trainable_variables)
    np.testing.assert_allclose(outputs, x @ kernel + bias, rtol=1e-5, atol=1e-6)
    of_kernel, of_bias = tape.gradient(total, layer.trainable_variables)
    assert isinstance(of_kernel, tf.IndexedSlices)
    assert set(of_kernel.indices.numpy()) == set(np.flatnonzero(x.any(axis=0)))
    np.testing.assert_allclose(
        tf.convert_to_tensor(of_kernel), x.T @ upstream, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(of_bias, upstream.sum(axis=0), rtol=1e-5, atol=1e-6)


def test_xla_is_not_asked_for():
    assert not SparseDense(3).supports_jit


def test_width_must_be_known():
    with pytest.raises(ValueError, match="features known"):
        SparseDense(3).build((None, None))
    with pytest.raises(ValueError, match="`units` must be a positive integer"):
        SparseDense(0)
