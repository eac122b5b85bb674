"""The values and gradients of TF-Ranking's losses, on lists with padding, grades and ties.

TF-Ranking reduces otherwise. What is compared is the loss of a list; stated per test, where it
differs from ours by more than a sum.
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses

from ..tf_ranking import load_or_skip

tfr_losses = load_or_skip().keras.losses
NONE = tf.keras.losses.Reduction.NONE
BATCH, N = 6, 11


@pytest.fixture
def lists(rng):
    """Scores, and labels with grades, ties of grades and items that are not there."""
    scores = rng.normal(size=(BATCH, N)).astype(np.float32)
    labels = rng.integers(0, 4, (BATCH, N)).astype(np.float32)
    labels[:, 0] = 2
    labels[1, 5:] = -1
    labels[2, [3, 7]] = -1
    return labels, scores


def per_list(loss, labels, scores, weights=None):
    """Loss of each list and its gradient."""
    scores = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = tf.reshape(loss(labels, scores, weights), [BATCH, -1])
        value = tf.reduce_sum(value, axis=1)
    return value.numpy(), tape.gradient(value, scores).numpy()


def compare(ours, theirs, labels, scores, scale=1.0, weights=None):
    value, gradient = per_list(ours(reduction="none"), labels, scores, weights)
    expected, expected_gradient = per_list(theirs(reduction=NONE), labels, scores, weights)
    scale = np.broadcast_to(scale, [BATCH])
    np.testing.assert_allclose(value, expected * scale, rtol=1e-5)
    np.testing.assert_allclose(
        gradient, expected_gradient * scale[:, None], rtol=1e-4, atol=1e-6 * np.abs(gradient).max()
    )


def with_arguments(loss, **arguments):
    return lambda **kwargs: loss(**arguments, **kwargs)


@pytest.mark.parametrize(
    "name", ["SoftmaxLoss", "UniqueSoftmaxLoss", "ApproxNDCGLoss", "ApproxMRRLoss"]
)
@pytest.mark.parametrize("temperature", [None, 0.5])
def test_listwise(name, temperature, lists):
    arguments = {} if temperature is None else {"temperature": temperature}
    ours = with_arguments(getattr(losses, name), **arguments)
    compare(ours, with_arguments(getattr(tfr_losses, name), **arguments), *lists)


@pytest.mark.parametrize("name", ["PairwiseLogisticLoss", "PairwiseHingeLoss"])
def test_pairwise(name, lists):
    """Theirs is a value per item; ours is the sum over the list."""
    compare(getattr(losses, name), getattr(tfr_losses, name), *lists)


@pytest.mark.parametrize("name", ["PairwiseLogisticLoss", "PairwiseHingeLoss"])
@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("smooth_fraction", [0.0, 0.4, 1.0])
def test_lambda_weights(name, top_k, smooth_fraction, lists):
    """Theirs grow with the width of the labels, ours with the items that are there."""
    labels, scores = lists
    ours = losses.NDCGLambdaWeights(top_k, smooth_fraction)
    theirs = tfr_losses.NDCGLambdaWeight(topn=top_k, smooth_fraction=smooth_fraction)
    compare(
        with_arguments(getattr(losses, name), lambda_weights=ours),
        with_arguments(getattr(tfr_losses, name), lambda_weight=theirs),
        labels,
        scores,
        scale=(labels >= 0).sum(axis=1) / N,
    )


def test_mean_squared(lists):
    """Theirs is a value per item; ours is the mean over the items that are there."""
    labels, scores = lists
    scale = 1 / (labels >= 0).sum(axis=1)
    compare(losses.MeanSquaredLoss, tfr_losses.MeanSquaredLoss, labels, scores, scale)


def test_list_mle(rng):
    """Theirs orders tied items at random, and adds log(m!) for m items that are not there."""
    scores = rng.normal(size=(BATCH, N)).astype(np.float32)
    labels = np.stack([rng.permutation(N) for _ in range(BATCH)]).astype(np.float32)
    labels[2] = np.where(labels[2] < 3, -1, labels[2] - 3)
    value, gradient = per_list(losses.ListMLELoss(reduction="none"), labels, scores)
    expected, expected_gradient = per_list(tfr_losses.ListMLELoss(reduction=NONE), labels, scores)
    expected[2] -= math.log(math.factorial(3))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["SoftmaxLoss", "PairwiseLogisticLoss", "PairwiseHingeLoss", "UniqueSoftmaxLoss"],
)
def test_values_with_tied_scores(name, lists):
    labels, scores = lists
    scores = np.round(scores)
    value, _ = per_list(getattr(losses, name)(reduction="none"), labels, scores)
    expected, _ = per_list(getattr(tfr_losses, name)(reduction=NONE), labels, scores)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "SoftmaxLoss",
        "UniqueSoftmaxLoss",
        "ApproxNDCGLoss",
        "ApproxMRRLoss",
        "PairwiseLogisticLoss",
        "PairwiseHingeLoss",
        "MeanSquaredLoss",
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_item_weights(name, seed, lists):
    labels, scores = lists
    weights = np.random.default_rng(seed).choice([0.0, 0.3, 1.0, 4.0], (BATCH, N))
    labels[4, 0] = 0 if seed % 2 else 2  # Lists with and without a positive of a high weight.
    weights = weights.astype(np.float32)
    scale = 1.0
    if name == "MeanSquaredLoss":
        scale = 1 / (labels >= 0).sum(axis=1)
    compare(getattr(losses, name), getattr(tfr_losses, name), labels, scores, scale, weights)


@pytest.mark.parametrize("name", ["PairwiseLogisticLoss", "PairwiseHingeLoss"])
def test_item_weights_with_lambda_weights(name, lists, rng):
    labels, scores = lists
    weights = rng.random((BATCH, N)).astype(np.float32)
    ours = with_arguments(
        getattr(losses, name), lambda_weights=losses.NDCGLambdaWeights(3, smooth_fraction=0.4)
    )
    theirs = tfr_losses.NDCGLambdaWeight(topn=3, smooth_fraction=0.4)
    theirs = with_arguments(getattr(tfr_losses, name), lambda_weight=theirs)
    scale = (labels >= 0).sum(axis=1) / N
    compare(ours, theirs, labels, scores, scale, weights)


def test_item_weights_of_list_mle(rng):
    scores = rng.normal(size=(BATCH, N)).astype(np.float32)
    labels = np.stack([rng.permutation(N) for _ in range(BATCH)]).astype(np.float32)
    weights = rng.random((BATCH, N)).astype(np.float32)
    compare(losses.ListMLELoss, tfr_losses.ListMLELoss, labels, scores, weights=weights)


def test_gumbel_approx_ndcg_has_the_same_mean():
    """Both are random: 4,000 equal lists, five standard errors."""
    scores = np.tile(np.array([[0.3, -0.2, 0.8, 0.1, 0.0]], np.float32), (4000, 1))
    labels = np.tile(np.array([[1.0, 0.0, 0.0, 2.0, -1.0]], np.float32), (4000, 1))
    value = losses.GumbelApproxNDCGLoss(4, seed=1, reduction="none")(labels, scores).numpy()
    # Their samples stand one after the other: [lists * samples, 1].
    theirs = tfr_losses.GumbelApproxNDCGLoss(sample_size=4, seed=2, reduction=NONE)
    expected = np.ravel(theirs(labels, scores))
    assert len(expected) == 4 * 4000
    error = math.hypot(value.std() / math.sqrt(4000), expected.std() / math.sqrt(16_000))
    assert abs(value.mean() - expected.mean()) < 5 * error
