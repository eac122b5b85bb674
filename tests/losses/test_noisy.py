"""Forward correction against NumPy (its matrix names the classes: it has no row in the tables)."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import losses

from .. import derivatives
from . import oracles

N, IDS = 5, [0, 3, 2, 4]


@pytest.fixture
def transition(rng):
    matrix = rng.uniform(size=(N, N)) * (rng.uniform(size=(N, N)) < 0.5) + np.eye(N)
    return matrix / matrix.sum(axis=1, keepdims=True)


def value_and_gradient(loss, labels, scores):
    """What `call` gives; `__call__` would make float32 of float64."""
    found = derivatives.value_and_gradient(lambda x: loss.call(labels, x), scores)
    return [x.numpy() for x in found]


def test_values_and_gradients(rng, transition):
    """Also of masked classes, which have no probability."""
    scores = rng.normal(size=(4, N)) * 3
    loss = losses.ForwardCorrectionLoss(transition)
    graded = np.eye(N)[IDS] + rng.integers(0, 3, size=(4, N))
    masked = np.eye(N)[IDS]
    masked[0, 2] = masked[1, [0, 4]] = -1
    for labels in (IDS, graded, masked):
        value, gradient = value_and_gradient(loss, labels, scores)
        for row, y in enumerate(np.eye(N)[IDS] if labels is IDS else labels):
            there = y >= 0

            def definition(s, y=y, there=there):
                seen = np.exp(s - np.logaddexp.reduce(s)) @ transition[there]
                return -(np.maximum(y, 0) * np.log(seen)).sum()

            s = scores[row, there]
            np.testing.assert_allclose(value[row], definition(s), rtol=1e-11)
            slopes = oracles.gradient(definition, s)
            np.testing.assert_allclose(gradient[row, there], slopes, rtol=1e-5, atol=1e-8)
            assert not gradient[row, ~there].any()


def test_labels_that_cannot_be_are_finite():
    loss = losses.ForwardCorrectionLoss([[1.0, 0.0], [0.5, 0.5]])
    # The only class that could carry label 1 is masked, but for the label itself.
    value, gradient = value_and_gradient(loss, [1], np.array([[0.0, -1e15]], np.float32))
    assert np.isfinite(value) and np.isfinite(gradient).all()
    # Of the classes that are left none carries label 0: its class does not, and the other is gone.
    loss = losses.ForwardCorrectionLoss([[0.0, 1.0], [1.0, 0.0]])
    value, gradient = value_and_gradient(loss, np.array([[1.0, -1.0]]), np.array([[0.5, 2.0]]))
    np.testing.assert_allclose(value, [1e30], rtol=1e-6)
    np.testing.assert_array_equal(gradient, [[0.0, 0.0]])


def test_compiled_and_saved(rng, transition):
    scores = rng.normal(size=(4, N)).astype(np.float32)
    loss = losses.ForwardCorrectionLoss(transition)
    again = losses.get(keras.utils.serialize_keras_object(loss))
    assert again.transition == loss.transition
    compiled = tf.function(again, jit_compile=True)
    np.testing.assert_allclose(compiled(tf.constant(IDS), scores), loss(IDS, scores), rtol=1e-6)


def test_the_estimate_comes_near_the_truth(rng):
    transition = np.array([[0.7, 0.3, 0.0], [0.0, 0.8, 0.2], [0.1, 0.0, 0.9]])
    classes = rng.integers(0, 3, 20_000)
    labels = np.array([rng.choice(3, p=transition[c]) for c in classes])
    # What a model knows of the labels if it knows the class nearly always.
    probabilities = np.where(rng.random((20_000, 1)) < 0.02, 1 / 3, transition[classes])
    estimate = losses.estimate_transition(probabilities, labels)
    np.testing.assert_allclose(estimate, transition, atol=0.03)
    losses.ForwardCorrectionLoss(estimate)


def test_classes_without_examples_and_rounded_means_keep_their_labels():
    estimate = losses.estimate_transition([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]], [0, 1])
    np.testing.assert_array_equal(estimate, np.eye(3))
    assert (0.1 + 0.1 + 0.1) / 3 > 0.1
    estimate = losses.estimate_transition([[0.9, 0.1]] * 3, [1, 1, 1])
    np.testing.assert_array_equal(estimate, np.eye(2))


@pytest.mark.parametrize(
    ("probabilities", "labels", "name"),
    [
        ([0.5, 0.5], [0], "probabilities"),
        (np.zeros((0, 2)), [], "probabilities"),
        ([[0.5, 0.5]], [2], "labels"),
        ([[0.5, 0.5]], [-1], "labels"),
        ([[0.5, 0.5]], [0.0], "labels"),
        ([[0.5, 0.5]], [0, 1], "labels"),
    ],
)
def test_what_the_estimate_cannot_be_made_of(probabilities, labels, name):
    with pytest.raises(ValueError, match=rf"`{name}` must .* Received: "):
        losses.estimate_transition(probabilities, labels)


def test_a_label_without_any_probability_has_no_gradient():
    loss = losses.GeneralizedCrossEntropyLoss(0.5)
    value, gradient = value_and_gradient(loss, [0], np.array([[0.0, 1e15]], np.float32))
    assert value == 2 and not gradient.any()  # (1 - 0) / 0.5
