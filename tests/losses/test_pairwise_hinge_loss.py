"""The pairwise hinge loss against its definition."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses

from . import oracles
from .by_definition import (
    assert_by_definition,
    assert_by_definition_with_tied_scores,
    every_size,
    loss_and_gradient,
)

LOSS = losses.PairwiseHingeLoss(margin=1.5, reduction="none")


def oracle(s, y):
    return lambda x: oracles.pairwise_hinge(x, y, margin=1.5)


@every_size
def test_value_and_gradient_by_definition(n, grades, rng):
    assert_by_definition(LOSS, oracle, rng, n, grades)


def test_tied_scores():
    assert_by_definition_with_tied_scores(LOSS, oracle)


@pytest.mark.parametrize("grades", [2, 4])
def test_many_positives_and_ties_on_the_margin(grades, rng):
    n = 200
    labels = rng.integers(0, grades, (3, n)).astype(np.float64)
    labels[0, 50:] = 0
    scores = np.round(rng.normal(size=(3, n)) * 4) / 4  # Many ties, on the margin too.
    loss = losses.PairwiseHingeLoss(reduction="none")
    value, gradient = loss_and_gradient(loss, labels, scores)
    for row in range(3):
        expected = oracles.pairwise_hinge(scores[row], labels[row])
        np.testing.assert_allclose(value[row], expected, rtol=1e-12)
    # At a kink the slope of a hinge is that of the flat side, as relu's.
    active = (scores[:, :, None] - scores[:, None, :] < 1) & (
        labels[:, :, None] > labels[:, None, :]
    )
    expected = active.sum(axis=1) - active.sum(axis=2)
    np.testing.assert_array_equal(gradient, expected)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_exact_far_from_zero(jit_compile):
    """Scores around 1e4 in float32: sums over far items must not blur those of near ones."""
    n = 300
    rng = np.random.default_rng(1)
    scores = (rng.normal(size=(1, n)) * 1000 + 1e4).astype(np.float32)
    labels = np.zeros((1, n), np.float32)
    labels[0, np.argsort(-scores[0])[:100]] = 1
    loss = tf.function(losses.PairwiseHingeLoss(margin=10.0), jit_compile=jit_compile)
    expected = oracles.pairwise_hinge(scores[0].astype(np.float64), labels[0], 10.0)
    np.testing.assert_allclose(loss(labels, scores), expected, rtol=1e-6)
