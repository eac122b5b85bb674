"""What is special to the pairwise losses: ways of many positives, and far scores."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses

from .. import derivatives
from . import oracles


def value_and_gradient(loss, labels, scores):
    return derivatives.value_and_gradient(lambda x: loss.call(labels, x), scores)


@pytest.mark.parametrize("grades", [2, 4])
def test_many_positives_and_ties_on_the_margin(grades, rng):
    n = 200
    labels = rng.integers(0, grades, (3, n)).astype(np.float64)
    labels[0, 50:] = 0
    scores = np.round(rng.normal(size=(3, n)) * 4) / 4  # Many ties, on the margin too.
    value, gradient = value_and_gradient(losses.PairwiseHingeLoss(), labels, scores)
    expected = [oracles.pairwise_hinge(*row) for row in zip(scores, labels, strict=True)]
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    # At a kink the slope of a hinge is that of the flat side, as relu's.
    active = (scores[:, :, None] - scores[:, None, :] < 1) & (
        labels[:, :, None] > labels[:, None, :]
    )
    np.testing.assert_array_equal(gradient, active.sum(axis=1) - active.sum(axis=2))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_hinges_are_exact_far_from_zero(jit_compile):
    """Scores around 1e4 in float32: sums over far items must not blur those of near ones."""
    n = 300
    rng = np.random.default_rng(1)
    scores = (rng.normal(size=(1, n)) * 1000 + 1e4).astype(np.float32)
    labels = np.zeros((1, n), np.float32)
    labels[0, np.argsort(-scores[0])[:100]] = 1
    loss = tf.function(losses.PairwiseHingeLoss(margin=10.0), jit_compile=jit_compile)
    expected = oracles.pairwise_hinge(scores[0].astype(np.float64), labels[0], margin=10.0)
    np.testing.assert_allclose(loss(labels, scores), expected, rtol=1e-6)


@pytest.mark.parametrize("make", [losses.PairwiseLogisticLoss, losses.PairwiseHingeLoss])
def test_smoothed_labels_of_far_scores_are_finite(make, rng):
    """The way of many positives that sorts is not that of smoothed labels."""
    labels = np.zeros((2, 150), np.float32)
    labels[:, :90] = 1
    scores = 1e15 * rng.normal(size=(2, 150)).astype(np.float32)
    value, gradient = value_and_gradient(make(label_smoothing=0.2), labels, scores)
    assert np.isfinite(value).all() and np.isfinite(gradient).all()
