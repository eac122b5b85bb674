"""Softmax cross-entropy against its definition and Keras's own."""

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import losses

from . import oracles
from .by_definition import (
    assert_by_definition,
    assert_by_definition_with_tied_scores,
    every_size,
)
from .formula import value_of

LOSS = losses.SoftmaxLoss(temperature=0.7, reduction="none")


def oracle(s, y):
    return lambda x: oracles.softmax(x, y, temperature=0.7)


@every_size
def test_value_and_gradient_by_definition(n, grades, rng):
    assert_by_definition(LOSS, oracle, rng, n, grades)


def test_tied_scores():
    assert_by_definition_with_tied_scores(LOSS, oracle)


def test_annealed_temperature_has_a_gradient_with_masked_items():
    annealing = losses.TemperatureAnnealing(initial=0.05, final=0.01, epochs=9)
    loss = losses.SoftmaxLoss(annealing)
    with tf.GradientTape() as tape:
        tape.watch(annealing.value)
        value = value_of(loss, [[1.0, 0.9, 3.0]], [[0]], mask=[[True, True, False]])
    # log(1 + e^(-0.1 / T)), whose slope in T is 0.1 / T^2 times the other item's probability.
    other = 1 / (1 + np.exp(2.0))
    np.testing.assert_allclose(value, [-np.log(1 - other)], rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(value, annealing.value), 40 * other, rtol=1e-5)


def value_and_gradient(loss, labels, scores):
    scores = tf.convert_to_tensor(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(labels, scores)
    return value, tape.gradient(value, scores)


def test_smoothing_is_that_of_keras(rng):
    scores = rng.normal(size=(5, 8)).astype(np.float32)
    labels = np.eye(8, dtype=np.float32)[[0, 3, 3, 7, 1]]
    ours = losses.SoftmaxLoss(label_smoothing=0.1, reduction="none")
    theirs = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=0.1, reduction="none"
    )
    expected = value_and_gradient(theirs, labels, scores)
    for form in (labels, labels.argmax(axis=1)):
        for a, b in zip(value_and_gradient(ours, form, scores), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_smoothing_of_relevance_and_masks(rng):
    """The share is spread over the items that are not masked."""
    scores = rng.normal(size=(5, 8)).astype(np.float32)
    relevance = rng.integers(-1, 3, size=(5, 8)).astype(np.float32)
    relevance[0] = np.eye(8)[2]
    relevance[1] = 0  # No positive.
    loss = losses.SoftmaxLoss(2.0, label_smoothing=0.3, reduction="none")
    expected = []
    for y, s in zip(relevance, scores.astype(np.float64) / 2, strict=True):
        y, s = y[y >= 0], s[y >= 0]
        smooth = 0.7 * y + 0.3 * y.sum() / len(y)
        expected.append(-(smooth @ (s - np.log(np.exp(s).sum()))))
    scores[relevance < 0] = np.nan
    np.testing.assert_allclose(loss(relevance, scores), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tf.function(loss)(relevance, scores), expected, rtol=1e-5, atol=1e-6)
