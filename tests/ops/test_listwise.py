"""The listwise and pairwise losses against their definitions, forward and gradient."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses, ops

from . import listwise_oracles as oracles


def lambda_case(top_k, smooth_fraction):
    weights = losses.NDCGLambdaWeights(top_k, smooth_fraction)

    def oracle(s, y):
        weight = oracles.lambda_weights(s, y, top_k, smooth_fraction)  # No gradient flows to it.
        return lambda x: oracles.pairwise_logistic(x, y, weight=weight)

    return losses.PairwiseLogisticLoss(reduction="none", lambda_weights=weights), oracle


def case(loss, oracle, **kwargs):
    return loss(reduction="none", **kwargs), lambda s, y: lambda x: oracle(x, y, **kwargs)


CASES = {
    "softmax": case(losses.SoftmaxLoss, oracles.softmax, temperature=0.7),
    "pairwise_logistic": case(
        losses.PairwiseLogisticLoss, oracles.pairwise_logistic, temperature=0.7
    ),
    "pairwise_hinge": case(losses.PairwiseHingeLoss, oracles.pairwise_hinge, margin=1.5),
    "approx_ndcg": case(losses.ApproxNDCGLoss, oracles.approx_ndcg, temperature=0.3),
    "approx_mrr": case(losses.ApproxMRRLoss, oracles.approx_mrr, temperature=0.3),
    "unique_softmax": case(losses.UniqueSoftmaxLoss, oracles.unique_softmax, temperature=0.7),
    "list_mle": case(losses.ListMLELoss, oracles.list_mle, temperature=0.7),
    "mean_squared": case(
        losses.MeanSquaredLoss, oracles.mean_squared, positive_weight=3.0, positive_target=2.0
    ),
    "lambda": lambda_case(None, 0.0),
    "lambda_mart": lambda_case(None, 1.0),
    "lambda_top_k": lambda_case(4, 0.3),
}


def random_lists(rng, n, grades):
    """Lists with grades, ties of grades and items that are not there; the last has one positive."""
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


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("n", "grades"), [(9, 2), (9, 5), (100, 3)])
def test_value_and_gradient_by_definition(name, n, grades, rng):
    loss, oracle = CASES[name]
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


@pytest.mark.parametrize("name", CASES)
def test_tied_scores(name):
    if name.startswith("lambda"):
        pytest.skip("the ranks jump at ties")
    loss, oracle = CASES[name]
    scores = np.array([[0.5, 0.5, 0.5, -0.25, -0.25]])
    labels = np.array([[0.0, 1.0, 2.0, 1.0, 0.0]])
    value, gradient = loss_and_gradient(loss, labels, scores)
    function = oracle(scores[0], labels[0])
    np.testing.assert_allclose(value[0], function(scores[0]), rtol=1e-12)
    expected = oracles.gradient(function, scores[0])
    np.testing.assert_allclose(gradient[0], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("grades", [2, 4])
def test_hinge_by_sorting_equals_hinge_by_pairs(grades, rng):
    """Class ids of a few positives take the pairs, relevance with many sorts; with tied scores."""
    n = 200
    labels = rng.integers(0, grades, (3, n)).astype(np.float64)
    labels[0, 50:] = 0
    scores = np.round(rng.normal(size=(3, n)) * 4) / 4  # Many ties, on the margin too.
    by_sorting = losses.PairwiseHingeLoss(reduction="none")
    value, gradient = loss_and_gradient(by_sorting, labels, scores)
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
def test_hinge_by_sorting_is_exact_far_from_zero(jit_compile):
    """Scores around 1e4 in float32: sums over far items must not blur those of near ones."""
    n = 300
    rng = np.random.default_rng(1)
    scores = (rng.normal(size=(1, n)) * 1000 + 1e4).astype(np.float32)
    labels = np.zeros((1, n), np.float32)
    labels[0, np.argsort(-scores[0])[:100]] = 1
    loss = tf.function(losses.PairwiseHingeLoss(margin=10.0), jit_compile=jit_compile)
    expected = oracles.pairwise_hinge(scores[0].astype(np.float64), labels[0], 10.0)
    np.testing.assert_allclose(loss(labels, scores), expected, rtol=1e-6)


def test_hinge_by_sorting_has_no_second_derivative(rng):
    scores = tf.constant(rng.normal(size=(1, 200)))
    with tf.GradientTape() as outer:
        outer.watch(scores)
        _, gradient = with_tape(losses.PairwiseHingeLoss(), np.ones((1, 200)), scores)
    with pytest.raises(LookupError, match="second derivative"):
        outer.gradient(gradient, scores)


def with_tape(loss, labels, scores):
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss.call(labels, scores)
    return value, tape.gradient(value, scores)


def test_second_derivative_of_pairwise_logistic():
    scores = tf.constant([[0.3, -0.4, 0.0]], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(scores)
        _, gradient = with_tape(losses.PairwiseLogisticLoss(), [0], scores)
        total = gradient[0, 0]
    slope = outer.gradient(total, scores)[0, 0]
    differences = np.array([0.3 + 0.4, 0.3])
    sigmoid = 1 / (1 + np.exp(-differences))
    np.testing.assert_allclose(slope, (sigmoid * (1 - sigmoid)).sum(), rtol=1e-12)


def test_list_mle_bounds_every_order_of_ties(rng):
    scores = rng.normal(size=6)
    labels = np.array([2.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    value = float(losses.ListMLELoss().call(labels[None], scores[None])[0])
    orders = [(0, *ties) for ties in itertools.permutations([1, 2, 3])]
    assert value > max(oracles.plackett_luce(scores, order) for order in orders)
    distinct = np.array([4.0, 3.0, 2.0, 1.0, 0.0, 0.0])
    value = float(losses.ListMLELoss().call(distinct[None], scores[None])[0])
    np.testing.assert_allclose(value, oracles.plackett_luce(scores, (0, 1, 2, 3)), rtol=1e-12)


@pytest.mark.parametrize("loss", [losses.ListMLELoss, losses.UniqueSoftmaxLoss])
def test_one_positive_is_softmax(loss, rng):
    scores, ids = rng.normal(size=(5, 8)), rng.integers(0, 8, 5)
    expected = losses.SoftmaxLoss().call(ids, scores)
    np.testing.assert_allclose(loss().call(ids, scores), expected, rtol=1e-12)


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


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
@pytest.mark.parametrize("loss", [losses.ApproxNDCGLoss, losses.ApproxMRRLoss])
def test_approximate_metrics_are_finite_for_any_finite_scores(loss, dtype, rng):
    top = float(dtype.max)
    rows = [[top, -top, 0, 1, -1], [-top] * 5, [top] * 5, [top, 0, 0, 0, 0], [0, top, top, -top, 1]]
    scores = tf.cast(tf.constant(rows, tf.float32), dtype)
    for temperature in (1e-4, 0.1, 10.0):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss(temperature=temperature, reduction="none")([0] * 5, scores)
        gradient = tape.gradient(value, scores)
        assert np.isfinite(value).all() and np.isfinite(tf.cast(gradient, tf.float32)).all()
        assert ((-1 <= value) & (value < 0)).numpy().all()


def test_soft_ranks_among_positives(rng):
    scores, ids = rng.normal(size=(1, 8)), np.array([[6, 1, -1, 3]])
    ranks = ops.sigmoid_ranks_among_positives(scores, ids, temperature=0.4)
    expected = oracles.soft_ranks(scores[0, [6, 1, 3]], 0.4)
    np.testing.assert_allclose(ranks.numpy()[0, [0, 1, 3]], expected, rtol=1e-12)


@pytest.mark.parametrize("loss", [ops.list_mle_loss, ops.unique_softmax_loss])
def test_labels_of_all_items_under_xla(rng, loss):
    """So many that no tensor of all pairs fits into memory."""
    scores = rng.normal(size=(64, 10_000)).astype(np.float32)
    relevance = np.zeros_like(scores)
    relevance[:, 7] = 1
    ids = np.tile(np.arange(10_000, dtype=np.int32), (64, 1))
    actual = tf.function(loss, jit_compile=True)(scores, ids, relevance)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(np.full(64, 7), scores)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
