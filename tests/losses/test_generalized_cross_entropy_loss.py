"""Generalised cross-entropy against NumPy in float64, and its two ends."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses

N = 6


def value_and_gradient(loss, labels, scores):
    """What `call` gives; `__call__` would make float32 of float64."""
    scores = tf.convert_to_tensor(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss.call(labels, scores)
    return value.numpy(), tape.gradient(value, scores).numpy()


def by_definition(relevance, scores, q):
    """The value, and the gradient: sum_y w_y p_y^q (p - e_y)."""
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    powers = relevance * shares**q
    values = (relevance * (1 - shares**q) / q).sum(axis=1)
    return values, powers.sum(axis=1, keepdims=True) * shares - powers


@pytest.mark.parametrize("q", [0.2, 0.7, 1.0])
def test_values_and_gradients(rng, q):
    scores = rng.normal(size=(5, N)) * 3
    relevance = np.eye(N)[[0, 3, 3, 5, 1]]
    relevance[4] = [0, 1, 0, 2, 0.5, 0]
    loss = losses.GeneralizedCrossEntropyLoss(q)
    actual = value_and_gradient(loss, relevance, scores)
    for a, e in zip(actual, by_definition(relevance, scores, q), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-12, atol=1e-14)


def test_q_near_0_is_the_softmax_loss(rng):
    scores = rng.normal(size=(4, N)).astype(np.float32)
    near = losses.GeneralizedCrossEntropyLoss(1e-12)
    expected = value_and_gradient(losses.SoftmaxLoss(), [0, 1, 2, 5], scores)
    for a, e in zip(value_and_gradient(near, [0, 1, 2, 5], scores), expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-6)


def test_a_label_without_any_probability_has_no_gradient():
    scores = np.array([[0.0, 1e15]], np.float32)
    loss = losses.GeneralizedCrossEntropyLoss(0.5)
    value, gradient = value_and_gradient(loss, [0], scores)
    assert value == 2  # (1 - 0) / 0.5
    assert not gradient.any()


def test_probabilities_are_those_at_the_least_loss():
    shares = tf.constant([0.6, 0.3, 0.1], tf.float64)
    loss = losses.GeneralizedCrossEntropyLoss(0.7)
    # The softmax of the scores is in proportion to shares ** (1 / 0.3).
    scores = tf.math.log(shares)[tf.newaxis] / 0.3
    _, gradient = value_and_gradient(loss, shares[tf.newaxis].numpy(), scores)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)
    np.testing.assert_allclose(loss.probabilities(scores)[0], shares, rtol=1e-6)
    assert losses.GeneralizedCrossEntropyLoss(1.0).probabilities is None


@pytest.mark.parametrize("q", [0.0, 1.5, float("nan"), "1"])
def test_q_must_be_a_fraction(q):
    with pytest.raises(ValueError, match=r"`q` must be a number in \(0, 1\]\. Received: q="):
        losses.GeneralizedCrossEntropyLoss(q)
