"""Value and gradient of a loss against its definition in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from . import oracles

# Numbers of items and of grades.
every_size = pytest.mark.parametrize(("n", "grades"), [(9, 2), (9, 5), (100, 3)])


def random_lists(rng, n, grades):
    """Lists with grades, equal grades and masked items; the last list has one positive."""
    labels = rng.integers(0, grades, (4, n)).astype(np.float64)
    labels[3] = 0
    labels[:, n // 2] = 1
    labels[0, :3] = -1
    labels[2, [0, n - 1]] = -1
    return rng.normal(size=(4, n)), labels


def loss_and_gradient(loss, labels, scores):
    scores = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss.call(labels, scores)  # Keras 3 reduces in float32.
    return value.numpy(), tape.gradient(value, scores).numpy()


def assert_by_definition(loss, oracle, rng, n, grades):
    """Compares value and gradient with a definition, for random lists.

    Args:
        loss: a loss with `reduction="none"`.
        oracle: takes a list's scores and labels, and returns the loss as a function of scores.
        rng: a random generator.
        n: number of items.
        grades: number of grades.
    """
    scores, labels = random_lists(rng, n, grades)
    value, gradient = loss_and_gradient(loss, labels, scores)
    assert value.dtype == np.float64
    for row in range(4):
        there = labels[row] >= 0
        s = scores[row, there]
        function = oracle(s, labels[row, there])
        np.testing.assert_allclose(value[row], function(s), rtol=1e-10)
        expected = np.zeros(n)
        expected[there] = oracles.gradient(function, s)
        np.testing.assert_allclose(gradient[row], expected, rtol=1e-5, atol=1e-6)


def assert_by_definition_with_tied_scores(loss, oracle):
    """Compares value and gradient with a definition, for a list with tied scores."""
    scores = np.array([[0.5, 0.5, 0.5, -0.25, -0.25]])
    labels = np.array([[0.0, 1.0, 2.0, 1.0, 0.0]])
    value, gradient = loss_and_gradient(loss, labels, scores)
    function = oracle(scores[0], labels[0])
    np.testing.assert_allclose(value[0], function(scores[0]), rtol=1e-12)
    expected = oracles.gradient(function, scores[0])
    np.testing.assert_allclose(gradient[0], expected, rtol=1e-6, atol=1e-8)
