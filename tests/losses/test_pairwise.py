"""What the pairwise losses share: label smoothing and weights of pairs."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses

from . import oracles
from .by_definition import assert_by_definition, every_size, loss_and_gradient

BATCH, N = 5, 8
PAIRWISE = {
    "logistic": (losses.PairwiseLogisticLoss, lambda d: np.logaddexp(0, -d / 0.5)),
    "hinge": (losses.PairwiseHingeLoss, lambda d: np.maximum(0, 0.7 - d)),
}
OPTIONS: dict = {"logistic": {"temperature": 0.5}, "hinge": {"margin": 0.7}}


@pytest.fixture
def scores(rng):
    return rng.normal(size=(BATCH, N)).astype(np.float32)


@pytest.fixture
def relevance(rng):
    labels = rng.integers(-1, 3, size=(BATCH, N)).astype(np.float32)
    labels[0] = np.eye(N)[2]
    labels[1] = 0  # No positive.
    return labels


def value_and_gradient(loss, labels, scores):
    scores = tf.convert_to_tensor(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(labels, scores)
    return value, tape.gradient(value, scores)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", PAIRWISE)
def test_pairs_the_other_way_round(name, weighted, scores, relevance):
    """Weighted or not, with masked items, and with labels of several grades."""
    make, of_difference = PAIRWISE[name]
    weights = losses.NDCGLambdaWeights() if weighted else None
    loss = make(**OPTIONS[name], lambda_weights=weights, label_smoothing=0.2, reduction="none")
    expected = []
    for y, s in zip(relevance, scores.astype(np.float64), strict=True):
        y, s = y[y >= 0], s[y >= 0]
        weight = oracles.lambda_weights(s, y) if weighted and y.any() else None
        value = oracles.pairs(s, y, lambda d: 0.8 * of_difference(d), weight)
        expected.append(value + oracles.pairs(s, y, lambda d: 0.2 * of_difference(-d), weight))
    scores[relevance < 0] = np.nan
    np.testing.assert_allclose(loss(relevance, scores), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", PAIRWISE)
def test_pairwise_forms_agree(name, scores):
    """Ids, relevance, and labels of so many items that their positives are searched."""
    make, of_difference = PAIRWISE[name]
    loss = make(**OPTIONS[name], label_smoothing=0.2, reduction="none")
    ids = np.array([0, 3, 3, 7, 1])
    differences = (scores[np.arange(BATCH), ids][:, None] - scores).astype(np.float64)
    values = 0.8 * of_difference(differences) + 0.2 * of_difference(-differences)
    expected = values.sum(axis=1) - of_difference(np.zeros(1))
    labels = np.eye(N, dtype=np.float32)[ids]
    far = -np.ones((BATCH, 100), np.float32)
    wide = np.concatenate([labels, far], axis=1), np.concatenate([scores, far], axis=1)
    for y_true, y_pred in ((ids, scores), (labels, scores), wide):
        value, gradient = value_and_gradient(loss, y_true, y_pred)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        compiled = tf.function(lambda y, s: value_and_gradient(loss, y, s))
        for a, b in zip(compiled(y_true, y_pred), (value, gradient), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PAIRWISE)
def test_many_positives_and_far_scores(name, rng):
    """The way of many positives that sorts is not that of smoothed labels."""
    make, of_difference = PAIRWISE[name]
    labels = np.zeros((2, 150), np.float32)
    labels[:, :90] = 1
    scores = rng.normal(size=(2, 150)).astype(np.float32)
    loss = make(**OPTIONS[name], label_smoothing=0.2, reduction="none")
    differences = scores[:, :90, None].astype(np.float64) - scores[:, None, 90:]
    expected = 0.8 * of_difference(differences) + 0.2 * of_difference(-differences)
    np.testing.assert_allclose(loss(labels, scores), expected.sum(axis=(1, 2)), rtol=1e-5)
    value, gradient = value_and_gradient(loss, labels, 1e15 * scores)
    assert np.isfinite(value).all() and np.isfinite(gradient).all()


@every_size
@pytest.mark.parametrize(("top_k", "smooth_fraction"), [(None, 0.0), (None, 1.0), (4, 0.3)])
def test_lambda_weights_by_definition(top_k, smooth_fraction, n, grades, rng):
    weights = losses.NDCGLambdaWeights(top_k, smooth_fraction)
    loss = losses.PairwiseLogisticLoss(reduction="none", lambda_weights=weights)

    def oracle(s, y):
        weight = oracles.lambda_weights(s, y, top_k, smooth_fraction)  # No gradient flows to it.
        return lambda x: oracles.pairwise_logistic(x, y, weight=weight)

    assert_by_definition(loss, oracle, rng, n, grades)


def test_lambda_weights_count_ties_against_the_model():
    """All tied: the positive ranks last, the others first, so that a new model has a gradient."""
    weights = losses.NDCGLambdaWeights(smooth_fraction=1.0)
    loss = losses.PairwiseLogisticLoss(lambda_weights=weights)
    value, gradient = loss_and_gradient(loss, [0], np.zeros((1, 3)))
    weight = 3 * (1 / np.log2(1 + 1) - 1 / np.log2(1 + 3))  # n |d(1) - d(3)|, ideal DCG 1
    np.testing.assert_allclose(value, 2 * weight * np.log(2), rtol=1e-12)
    np.testing.assert_allclose(gradient, [[-weight, weight / 2, weight / 2]], rtol=1e-12)


def test_lambda_weights_are_checked():
    with pytest.raises(ValueError, match="`top_k` must be a positive integer"):
        losses.NDCGLambdaWeights(top_k=0)
    with pytest.raises(ValueError, match=r"`smooth_fraction` must be a number in \[0, 1\]"):
        losses.NDCGLambdaWeights(smooth_fraction=1.5)
    for loss in (losses.PairwiseLogisticLoss, losses.PairwiseHingeLoss):
        with pytest.raises(ValueError, match="`lambda_weights` must be None or"):
            loss(lambda_weights="ndcg")


def test_a_range_is_checked_and_saved():
    for make, bound in ((losses.SoftmaxLoss, 1.0), (losses.PairwiseHingeLoss, 0.5)):
        for wrong in (-0.1, bound, "much"):
            with pytest.raises(ValueError, match=rf"`label_smoothing` must be .* \[0, {bound:g}\)"):
                make(label_smoothing=wrong)
        loss = make(label_smoothing=0.1)
        assert type(loss).from_config(loss.get_config()).label_smoothing == 0.1
