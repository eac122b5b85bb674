"""Weights of items against NumPy in float64, value and gradient; TF-Ranking's values elsewhere."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses

from . import oracles
from .by_definition import every_size, random_lists

pytestmark = pytest.mark.keras2


def of_list(definition):
    """The weight of the list times a definition."""
    return lambda s, y, w: (w * y).sum() / y.sum() * definition(s, y)


# The loss of one list: scores, labels and weights of its items.
WEIGHTED = {
    "softmax": (losses.SoftmaxLoss, lambda s, y, w: oracles.softmax(s, w * y)),
    "softmax_mean": (
        lambda **kw: losses.SoftmaxLoss(positive_reduction="mean", **kw),
        lambda s, y, w: oracles.softmax(s, w * y) / y.sum(),
    ),
    "pairwise_logistic": (
        losses.PairwiseLogisticLoss,
        lambda s, y, w: oracles.pairwise_logistic(s, y, weight=w[:, None]),
    ),
    "pairwise_hinge": (
        losses.PairwiseHingeLoss,
        lambda s, y, w: oracles.pairwise_hinge(s, y, weight=w[:, None]),
    ),
    "pairwise_hinge_lambda": (
        lambda **kw: losses.PairwiseHingeLoss(lambda_weights=losses.NDCGLambdaWeights(5), **kw),
        lambda s, y, w: oracles.pairwise_hinge(
            s, y, weight=w[:, None] * oracles.lambda_weights(s, y, 5)
        ),
    ),
    "mean_squared": (losses.MeanSquaredLoss, lambda s, y, w: np.mean(w * (s - y) ** 2)),
    "approx_ndcg": (losses.ApproxNDCGLoss, of_list(oracles.approx_ndcg)),
    "approx_mrr": (losses.ApproxMRRLoss, of_list(oracles.approx_mrr)),
    "unique_softmax": (losses.UniqueSoftmaxLoss, of_list(oracles.unique_softmax)),
    "list_mle": (losses.ListMLELoss, of_list(oracles.list_mle)),
}


def value_and_gradient(loss, labels, scores, weights):
    scores = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(labels, scores, weights)
    return value.numpy(), tape.gradient(value, scores).numpy()


@pytest.mark.parametrize("name", WEIGHTED)
@every_size
def test_definition(name, n, grades, rng):
    make, definition = WEIGHTED[name]
    scores, labels = random_lists(rng, n, grades)
    weights = rng.choice([0.0, 0.5, 2.0, 7.0], labels.shape)
    value, gradient = value_and_gradient(make(reduction="none"), labels, scores, weights)
    for row, y in enumerate(labels):
        there = y >= 0
        s, y, w = scores[row, there], y[there], weights[row, there]
        np.testing.assert_allclose(value[row], definition(s, y, w), rtol=1e-5, atol=1e-6)
        expected = np.zeros(n)
        expected[there] = oracles.gradient(lambda s, y=y, w=w: definition(s, y, w), s)
        np.testing.assert_allclose(gradient[row], expected, rtol=1e-4, atol=1e-5)


def test_hinge_of_many_positives(rng):
    """Which comes from one sort."""
    make, definition = WEIGHTED["pairwise_hinge"]
    scores, labels = rng.normal(size=(2, 700)), rng.integers(0, 3, (2, 700)).astype(np.float64)
    weights = rng.random((2, 700))
    value, gradient = value_and_gradient(make(reduction="none"), labels, scores, weights)
    expected = [definition(*row) for row in zip(scores, labels, weights, strict=True)]
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert gradient.sum() == pytest.approx(0, abs=1e-6 * np.abs(gradient).sum())
    active = 1 - (scores[0][:, None] - scores[0]) > 0
    pairs = weights[0][:, None] * ((labels[0][:, None] > labels[0]) & active)
    np.testing.assert_allclose(gradient[0], pairs.sum(axis=0) - pairs.sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("name", WEIGHTED)
def test_class_ids(name, rng):
    """Weights as wide as the scores are no labels; ids find their weights."""
    make, _ = WEIGHTED[name]
    scores, weights = rng.normal(size=(3, 7)), rng.random((3, 7))
    ids = np.array([[2, -1], [0, 6], [5, 3]])
    relevance = np.array([[(i in row) * 1.0 for i in range(7)] for row in ids])
    loss = make(reduction="none")
    expected = value_and_gradient(loss, relevance, scores, weights)
    found = value_and_gradient(loss, ids, scores, weights)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", WEIGHTED)
def test_equal_weights_are_that_of_the_list(name, rng):
    make, _ = WEIGHTED[name]
    scores, labels = random_lists(rng, 9, 4)
    of_lists = np.array([0.5, 2.0, 0.0, 3.0])
    loss = make(reduction="none")
    expected = value_and_gradient(loss, labels, scores, of_lists)
    weights = np.repeat(of_lists[:, None], 9, axis=1)
    found = value_and_gradient(loss, labels, scores, weights)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_what_does_not_count_may_be_anything(name, rng):
    make, _ = WEIGHTED[name]
    scores, labels = random_lists(rng, 9, 4)
    labels[1] = 0
    weights = rng.random(labels.shape)
    loss = make(reduction="none")
    expected = value_and_gradient(loss, labels, scores, weights)
    weights[labels < 0] = np.nan
    weights[1] = np.nan
    if name != "mean_squared":
        weights[labels == 0] = np.nan
    found = value_and_gradient(loss, labels, scores, weights)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
    weights[0] = np.nan
    assert np.isnan(loss(labels, scores, weights).numpy()).tolist() == [True, False, False, False]


@pytest.mark.parametrize("name", ["softmax", "pairwise_hinge", "mean_squared", "list_mle"])
def test_graphs_of_unknown_shapes(name, rng):
    make, _ = WEIGHTED[name]
    loss = make(label_format="relevance")
    scores, labels = random_lists(rng, 9, 3)
    weights = rng.random(labels.shape)
    unknown = [tf.TensorSpec([None, None], tf.float64)] * 3
    graph = tf.function(loss, input_signature=unknown, autograph=False)
    for w in (weights, weights[:, :1]):
        np.testing.assert_allclose(graph(labels, scores, w), loss(labels, scores, w), rtol=1e-5)
    compiled = tf.function(loss, jit_compile=True, autograph=False)
    expected = loss(labels, scores, weights)
    np.testing.assert_allclose(compiled(labels, scores, weights), expected, rtol=1e-5)


def test_lists_of_one_item_have_weights_of_lists():
    loss = losses.MeanSquaredLoss(label_format="relevance", reduction="none")
    value = loss([[1.0], [1.0]], [[0.0], [0.0]], [[2.0], [3.0]])
    np.testing.assert_allclose(value, [2.0, 3.0])


@pytest.mark.parametrize(
    "make",
    [losses.RankmaxLoss, losses.SparsemaxLoss, losses.OrderedWeightedLoss, losses.WARPLoss],
)
def test_other_losses_raise(make):
    with pytest.raises(
        ValueError, match=r"no form with weights of items. Received: float32 of sha"
    ):
        make()([[1.0, 0.0]], [[0.0, 0.0]], [[1.0, 2.0]])


def test_in_fit(rng):
    keras = tf.keras
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(5, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.1), losses.SoftmaxLoss(label_format="relevance"))
    before = model.get_weights()[0]
    x = rng.normal(size=(8, 3)).astype(np.float32)
    y = rng.integers(0, 2, (8, 5)).astype(np.float32)
    w = rng.random((8, 5)).astype(np.float32)
    model.fit(x, y, sample_weight=w, batch_size=8, epochs=1, verbose=0)

    def loss(weights):
        lists = zip(x @ weights.reshape(3, 5), w * y, strict=True)
        return sum(oracles.softmax(s, wy) for s, wy in lists) / 8

    gradient = oracles.gradient(loss, before.astype(np.float64).ravel()).reshape(3, 5)
    np.testing.assert_allclose(model.get_weights()[0], before - 0.1 * gradient, atol=1e-5)
