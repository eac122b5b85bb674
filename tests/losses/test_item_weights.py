"""Weights of items in losses: forms, and what may stand where nothing counts."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tensorflow import keras

from rank4class_tf import losses

from .. import derivatives
from ..contract.tables import LOSSES
from ..contract.test_definitions import graded_lists, relevance_of
from ..rounding import assert_all_close
from . import oracles

pytestmark = pytest.mark.keras2

WEIGHTED = {case.name: case.make for case in LOSSES if case.weighted}
# In the formula of items, of pairs, of squares; and as a weight of lists.
few = pytest.mark.parametrize(
    "name", ["softmax", "pairwise_hinge", "mean_squared", "list_mle"]
)


def value_and_gradient(loss, labels, scores, weights):
    return derivatives.value_and_gradient(lambda x: loss(labels, x, weights), scores)


@few
def test_class_ids_and_equal_weights(name, rng):
    """Weights as wide as the scores are no labels; ids find their weights."""
    scores = rng.normal(size=(3, 7))
    weights = rng.random((3, 7))
    ids = np.array([[2, -1], [0, 6], [5, 3]])
    relevance = relevance_of(ids, 7)
    loss = WEIGHTED[name](reduction="none")
    of_lists = weights[:, :1]
    for given, expected in (
        ((ids, scores, weights), (relevance, scores, weights)),
        (
            (relevance, scores, np.tile(of_lists, 7)),
            (relevance, scores, of_lists[:, 0]),
        ),
    ):
        results = value_and_gradient(loss, *given), value_and_gradient(loss, *expected)
        assert_all_close(*results, 1e-5, 1e-7)


@few
def test_weights_of_what_does_not_count_may_be_anything(name, rng):
    labels, scores = graded_lists(rng, 9, 4)
    labels[1] = 0
    weights = rng.random(labels.shape)
    loss = WEIGHTED[name](reduction="none")
    expected = value_and_gradient(loss, labels, scores, weights)
    weights[labels < 0] = np.nan
    if name != "mean_squared":  # There each item counts by itself.
        weights[1] = np.nan
        weights[labels == 0] = np.nan
    assert_all_close(value_and_gradient(loss, labels, scores, weights), expected, 0)
    weights[0] = np.nan
    assert np.isnan(loss(labels, scores, weights).numpy()).tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_smoothing_spreads_weighted_labels(rng):
    loss = losses.SoftmaxLoss(
        label_smoothing=0.3, label_format="relevance", reduction="none"
    )
    labels, scores = graded_lists(rng, 9, 4)
    weights = rng.random(labels.shape)
    results = [loss(labels, scores, weights), loss(labels * weights, scores)]
    assert_all_close(*results, 1e-12)


def test_lists_of_one_item_have_weights_of_lists():
    loss = losses.MeanSquaredLoss(label_format="relevance", reduction="none")
    assert_allclose(loss([[1.0], [1.0]], [[0.0], [0.0]], [[2.0], [3.0]]), [2.0, 3.0])


def test_in_fit(rng, normal):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(5, use_bias=False)])
    model.compile(
        keras.optimizers.SGD(0.1), losses.SoftmaxLoss(label_format="relevance")
    )
    before = model.get_weights()[0]
    x = normal(8, 3)
    y = rng.integers(0, 2, (8, 5)).astype("float32")
    w = rng.random((8, 5)).astype("float32")
    model.fit(x, y, sample_weight=w, batch_size=8, epochs=1, verbose=0)

    def loss(weights):
        return sum(map(oracles.softmax, x @ weights.reshape(3, 5), y, w)) / 8

    gradient = oracles.gradient(loss, before.astype(np.float64).ravel()).reshape(3, 5)
    assert_allclose(model.get_weights()[0], before - 0.1 * gradient, atol=1e-5)
