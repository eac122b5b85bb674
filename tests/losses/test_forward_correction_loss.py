"""Forward correction against NumPy in float64, and the estimate of its matrix.

The loss has no row in the contract's table: its matrix names the classes, so that items can be
neither exchanged nor left out.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import losses

N = 5


@pytest.fixture
def transition(rng):
    matrix = rng.uniform(size=(N, N)) * (rng.uniform(size=(N, N)) < 0.5) + np.eye(N)
    return matrix / matrix.sum(axis=1, keepdims=True)


def value_and_gradient(loss, labels, scores):
    """What `call` gives; `__call__` would make float32 of float64."""
    scores = tf.convert_to_tensor(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss.call(labels, scores)
    return value.numpy(), tape.gradient(value, scores).numpy()


def by_definition(relevance, scores, transition, present=None):
    """The value, and the gradient: sum_y w_y (p - T_jy p_j / (p T)_y)."""
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares *= np.ones_like(scores) if present is None else present
    shares /= shares.sum(axis=1, keepdims=True)
    seen = shares @ transition
    of_label = shares[:, :, None] * transition / seen[:, None]  # [batch, class, label]
    values = -(relevance * np.log(seen)).sum(axis=1)
    return values, relevance.sum(axis=1, keepdims=True) * shares - (
        of_label * relevance[:, None]
    ).sum(axis=2)


def assert_same(actual, expected, rtol=1e-11):
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=1e-13)


def test_values_and_gradients(rng, transition):
    scores = rng.normal(size=(4, N)) * 3
    loss = losses.ForwardCorrectionLoss(transition)
    ids = np.array([0, 3, 2, 4])
    assert_same(
        value_and_gradient(loss, ids, scores), by_definition(np.eye(N)[ids], scores, transition)
    )
    relevance = np.eye(N)[ids] + rng.integers(0, 3, size=(4, N))
    assert_same(
        value_and_gradient(loss, relevance, scores), by_definition(relevance, scores, transition)
    )


def test_masked_classes_have_no_probability(rng, transition):
    scores = rng.normal(size=(4, N))
    relevance = np.eye(N)[[0, 3, 2, 4]]
    present = np.ones((4, N))
    present[0, 2] = present[1, [0, 4]] = 0
    expected = by_definition(relevance, scores, transition, present)
    labels = np.where(present > 0, relevance, -1)
    loss = losses.ForwardCorrectionLoss(transition)
    assert_same(value_and_gradient(loss, labels, scores), expected)


@pytest.mark.parametrize("size", [1.0, 1e15])
def test_right_labels_make_it_the_softmax_loss(rng, size):
    scores = (size * rng.normal(size=(4, N))).astype(np.float32)
    loss = losses.ForwardCorrectionLoss(np.eye(N))
    expected = value_and_gradient(losses.SoftmaxLoss(), [0, 3, 2, 4], scores)
    assert_same(value_and_gradient(loss, [0, 3, 2, 4], scores), expected, rtol=1e-6)


def test_a_label_that_cannot_be_is_finite():
    loss = losses.ForwardCorrectionLoss([[1.0, 0.0], [0.5, 0.5]])
    # The only class that could carry label 1 is masked, but for the label itself.
    value, gradient = value_and_gradient(loss, [1], np.array([[0.0, -1e15]], np.float32))
    assert np.isfinite(value) and np.isfinite(gradient).all()


def test_compiled_and_saved(rng, transition):
    scores = rng.normal(size=(4, N)).astype(np.float32)
    loss = losses.ForwardCorrectionLoss(transition)
    expected = loss([0, 3, 2, 4], scores)
    again = losses.get(keras.utils.serialize_keras_object(loss))
    assert again.transition == loss.transition
    compiled = tf.function(again, jit_compile=True)
    np.testing.assert_allclose(compiled(tf.constant([0, 3, 2, 4]), scores), expected, rtol=1e-6)


def test_the_least_loss_is_at_the_true_classes(rng):
    transition = np.array([[0.7, 0.3, 0.0], [0.0, 0.6, 0.4], [0.1, 0.1, 0.8]])
    shares = np.array([[0.2, 0.5, 0.3]])
    loss = losses.ForwardCorrectionLoss(transition)
    _, gradient = value_and_gradient(loss, shares @ transition, np.log(shares))
    np.testing.assert_allclose(gradient, 0, atol=1e-12)
    np.testing.assert_allclose(loss.probabilities(np.log(shares)), shares, rtol=1e-6)


@pytest.mark.parametrize(
    ("transition", "rule"),
    [
        ([[1.0, 0.0]], r"a square matrix\. Received: the shape \(1, 2\)"),
        ([[1.0, 0.0], [1.5, -0.5]], r"finite entries >= 0\. Received: -0\.5"),
        ([[1.0, 0.0], [float("nan"), 1.0]], r"finite entries >= 0\. Received: nan"),
        ([[1.0, 0.0], [0.5, 0.4]], r"rows that add up to 1\. Received: 0\.9"),
        ([[1.0, 0.0], [1.0, 0.0]], r"each column\. Received: a column of zeros, 1"),
        ("no", r"a matrix of numbers\. Received: 'no'"),
    ],
)
def test_matrices_that_are_none_of_transitions(transition, rule):
    with pytest.raises(ValueError, match=f"`transition` must .*{rule}"):
        losses.ForwardCorrectionLoss(transition)


def test_another_number_of_classes():
    loss = losses.ForwardCorrectionLoss(np.eye(3))
    with pytest.raises(ValueError, match="`transition` must .* Received: 3 rows for 2 classes"):
        loss([0], [[1.0, 0.0]])


def test_the_estimate_comes_near_the_truth(rng):
    transition = np.array([[0.7, 0.3, 0.0], [0.0, 0.8, 0.2], [0.1, 0.0, 0.9]])
    classes = rng.integers(0, 3, 20_000)
    labels = np.array([rng.choice(3, p=transition[c]) for c in classes])
    # What a model knows of the labels if it knows the class nearly always.
    probabilities = np.where(rng.random((20_000, 1)) < 0.02, 1 / 3, transition[classes])
    estimate = losses.estimate_transition(probabilities, labels)
    np.testing.assert_allclose(estimate, transition, atol=0.03)
    losses.ForwardCorrectionLoss(estimate)


def test_a_class_that_no_example_has_keeps_its_label():
    estimate = losses.estimate_transition([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]], [0, 1])
    np.testing.assert_array_equal(estimate, np.eye(3))


def test_a_label_whose_mean_is_rounded_up_is_taken_to_be_right():
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
        r4c.losses.estimate_transition(probabilities, labels)


def test_a_masked_class_has_no_share_where_the_label_is_impossible():
    # Of the classes that are left none carries label 0: its class does not, and the other is gone.
    loss = losses.ForwardCorrectionLoss([[0.0, 1.0], [1.0, 0.0]])
    relevance, scores = np.array([[1.0, -1.0]]), np.array([[0.5, 2.0]])
    value, gradient = value_and_gradient(loss, relevance, scores)
    np.testing.assert_allclose(value, [1e30], rtol=1e-6)
    np.testing.assert_array_equal(gradient, [[0.0, 0.0]])
