"""Standardised scores against NumPy, and where they need care."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf.ops.soft_ranks import standardize


def reference(scores):
    centred = scores - scores.mean()
    return centred / np.sqrt((centred**2).mean())


@pytest.mark.parametrize("scale, shift", [(1, 0), (1e-12, 3e-13), (1e15, -7e14), (3e29, 1e29)])
def test_values(rng, scale, shift):
    scores = (scale * rng.standard_normal((4, 9)) + shift).astype(np.float32)
    expected = [reference(row) for row in scores.astype(np.float64)]
    np.testing.assert_allclose(standardize(tf.constant(scores)), expected, atol=3e-6)


def test_masked_items_change_nothing(rng):
    scores = rng.standard_normal((1, 9))
    mask = rng.random((1, 9)) < 0.6
    found = standardize(tf.constant(np.where(mask, scores, 50)), tf.constant(mask)).numpy()
    np.testing.assert_allclose(found[mask], reference(scores[mask]))
    assert (found[~mask] == 0).all()


@pytest.mark.parametrize("masked", [False, True])
def test_gradient(rng, masked):
    mask = tf.constant(rng.random((2, 6)) < 0.7) if masked else None
    weights = rng.standard_normal((2, 6))
    scores = rng.standard_normal((2, 6))
    theory, numeric = tf.test.compute_gradient(
        lambda x: tf.reduce_sum(weights * standardize(x, mask), axis=1), [tf.constant(scores)], 1e-5
    )
    np.testing.assert_allclose(theory[0], numeric[0], atol=1e-7)


@pytest.mark.parametrize("scores", [[[2.0]], [[1e15, 1e15]], [[0.0, 0.0, 0.0]], [[1e-38, 2e-38]]])
def test_equal_scores(scores):
    scores = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        first = standardize(scores)[:, 0]
    size = scores.shape[1]
    np.testing.assert_allclose(first, [0], atol=1e-30)
    expected = np.where(np.arange(size) == 0, 1 - 1 / size, -1 / size)
    np.testing.assert_allclose(tape.gradient(first, scores), [expected], atol=1e-6)


def test_nothing_valid():
    scores = tf.constant([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        found = standardize(scores, tf.constant([[False, False]]))
    assert found.numpy().tolist() == [[0, 0]]
    assert tape.gradient(found, scores).numpy().tolist() == [[0, 0]]
