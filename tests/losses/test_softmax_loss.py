"""Softmax cross-entropy against its definition and Keras's own."""

import numpy as np
import pytest
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


def test_a_temperature_has_a_gradient_with_masked_items():
    temperature = tf.Variable(0.05)
    loss = losses.SoftmaxLoss(temperature)
    with tf.GradientTape() as tape:
        value = value_of(loss, [[1.0, 0.9, 3.0]], [[0]], mask=[[True, True, False]])
    # log(1 + e^(-0.1 / T)), whose slope in T is 0.1 / T^2 times the other item's probability.
    other = 1 / (1 + np.exp(2.0))
    np.testing.assert_allclose(value, [-np.log(1 - other)], rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(value, temperature), 40 * other, rtol=1e-5)


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


@pytest.mark.parametrize("jit_compile", [False, True])
def test_logit_adjustment_by_definition(jit_compile, rng):
    scores, labels = rng.normal(size=(6, 5)), rng.integers(-1, 3, (6, 5)).astype(np.float64)
    prior = np.array([0.5, 0.2, 0.2, 0.05, 0.05])
    loss = losses.SoftmaxLoss(2.0, class_prior=prior, positive_reduction="mean")
    tensor = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        value = tf.function(loss.call, jit_compile=jit_compile)(labels, tensor)
    gradient = tape.gradient(value, tensor).numpy()
    for row, (y, s) in enumerate(zip(labels, scores, strict=True)):
        there, total = y >= 0, np.maximum(y, 0).sum()
        weights = prior[there] * np.exp(s[there] / 2)
        expected = np.zeros(5)
        if total:
            share, p = y[there] / total, weights / weights.sum()
            np.testing.assert_allclose(value[row], -(share * np.log(p)).sum(), rtol=1e-10)
            expected[there] = (p - share) / 2
        else:
            assert value[row] == 0
        np.testing.assert_allclose(gradient[row], expected, rtol=1e-9, atol=1e-12)


def test_class_prior_and_reduction_are_checked():
    for prior in ([0.5, 0.6], [1.0, 0.0], [[0.5, 0.5]], [np.nan, 1.0], "uniform"):
        with pytest.raises(ValueError, match="`class_prior` must hold a number > 0"):
            losses.SoftmaxLoss(class_prior=prior)
    with pytest.raises(ValueError, match="`class_prior` must have a number for each.* 2 for 3"):
        losses.SoftmaxLoss(class_prior=[0.5, 0.5])([0], [[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="`positive_reduction` must be one of"):
        losses.SoftmaxLoss(positive_reduction="max")
    assert losses.SoftmaxLoss(class_prior=[0.5, 0.5]).probabilities is None


def test_class_prior_counts_labels():
    padded, ragged = [[0, 2], [2, -1]], tf.ragged.constant([[0, 2], [2]])
    dataset = tf.data.Dataset.from_tensor_slices((np.zeros(3), [0, 2, 2])).batch(2)
    for labels in (padded, ragged, dataset):
        prior = losses.class_prior(labels, num_classes=3)
        np.testing.assert_allclose(prior, [2 / 6, 1 / 6, 3 / 6])
    with pytest.raises(ValueError, match="`pseudo_count` must be > 0.* no labels of class 1"):
        losses.class_prior(padded, 3, pseudo_count=0.0)
    for wrong in ([0, 3], [-2], [0.5], np.eye(3), [True, False]):
        with pytest.raises(ValueError, match="`labels` must hold class ids"):
            losses.class_prior(wrong, 3)


def test_prior_of_counts():
    assert losses.class_prior(counts=[6, 2], pseudo_count=0.0) == [0.75, 0.25]
    assert losses.class_prior(counts=[2, 1, 3]) == losses.class_prior([0, 0, 1, 2, 2, 2], 3)
    for arguments in ({"counts": []}, {"counts": [1, -1]}, {"counts": [1], "labels": [0]}, {}):
        with pytest.raises(ValueError, match="`counts` must be"):
            losses.class_prior(**arguments)
