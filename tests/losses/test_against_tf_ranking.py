"""The values and gradients of TF-Ranking's losses, on lists with padding, grades and ties.

TF-Ranking reduces otherwise. What is compared is the loss of a list; stated per test, where it
differs from ours by more than a sum.
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses

from ..derivatives import value_and_gradient
from ..tf_ranking import load_or_skip

pytestmark = pytest.mark.keras2

tfr_losses = load_or_skip().keras.losses
NONE = tf.keras.losses.Reduction.NONE
BATCH, N = 6, 11
PAIRWISE = ["PairwiseLogisticLoss", "PairwiseHingeLoss"]
LISTWISE = ["SoftmaxLoss", "UniqueSoftmaxLoss", "ApproxNDCGLoss", "ApproxMRRLoss"]


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def lists(request, rng):
    """Labels with grades, ties of grades and items that are not there; scores; item weights."""
    scores = rng.normal(size=(BATCH, N)).astype(np.float32)
    labels = rng.integers(0, 4, (BATCH, N)).astype(np.float32)
    labels[:, 0] = 2
    labels[1, 5:] = -1
    labels[2, [3, 7]] = -1
    weights = rng.choice([0.0, 0.3, 1.0, 4.0], (BATCH, N)).astype(np.float32)
    return labels, scores, weights if request.param else None


@pytest.fixture
def orders(rng):
    """Labels that are all different, as TF-Ranking orders tied items at random."""
    labels = np.stack([rng.permutation(N) for _ in range(BATCH)]).astype(np.float32)
    return labels, rng.normal(size=(BATCH, N)).astype(np.float32)


def per_list(loss, labels, scores, weights=None):

    def of_lists(scores):
        return tf.reduce_sum(tf.reshape(loss(labels, scores, weights), [BATCH, -1]), axis=1)

    return [x.numpy() for x in value_and_gradient(of_lists, scores)]


def compare(name, lists, scale=1.0, ours=None, theirs=None):
    value, gradient = per_list(getattr(losses, name)(reduction="none", **(ours or {})), *lists)
    peer = getattr(tfr_losses, name)(reduction=NONE, **(theirs or ours or {}))
    expected, expected_gradient = per_list(peer, *lists)
    scale = np.broadcast_to(scale, [BATCH])
    np.testing.assert_allclose(value, expected * scale, rtol=1e-5)
    np.testing.assert_allclose(
        gradient, expected_gradient * scale[:, None], rtol=1e-4, atol=1e-6 * np.abs(gradient).max()
    )


@pytest.mark.parametrize("name", [*LISTWISE, *PAIRWISE])
@pytest.mark.parametrize("temperature", [None, 0.5])
def test_losses_of_lists_and_of_pairs(name, temperature, lists):
    """Theirs of pairs is a value per item; ours is the sum over the list."""
    if name in PAIRWISE and temperature:
        pytest.skip("Theirs has none.")
    compare(name, lists, ours={"temperature": temperature} if temperature else {})


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("smooth_fraction", [0.0, 0.4, 1.0])
def test_lambda_weights(name, top_k, smooth_fraction, lists):
    """Theirs grow with the width of the labels, ours with the items that are there."""
    ours = losses.NDCGLambdaWeights(top_k, smooth_fraction)
    theirs = tfr_losses.NDCGLambdaWeight(topn=top_k, smooth_fraction=smooth_fraction)
    scale = (lists[0] >= 0).sum(axis=1) / N
    compare(name, lists, scale, {"lambda_weights": ours}, {"lambda_weight": theirs})


def test_mean_squared(lists):
    """Theirs is a value per item; ours is the mean over the items that are there."""
    compare("MeanSquaredLoss", lists, 1 / (lists[0] >= 0).sum(axis=1))


def test_list_mle(orders):
    """Theirs adds log(m!) for m items that are not there."""
    labels, scores = orders
    weights = np.random.default_rng(1).random((BATCH, N)).astype(np.float32)
    compare("ListMLELoss", (labels, scores, weights))
    labels[2] = np.where(labels[2] < 3, -1, labels[2] - 3)
    value, gradient = per_list(losses.ListMLELoss(reduction="none"), labels, scores)
    expected, expected_gradient = per_list(tfr_losses.ListMLELoss(reduction=NONE), labels, scores)
    expected[2] -= math.log(math.factorial(3))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-5)
