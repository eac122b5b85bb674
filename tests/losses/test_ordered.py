"""Ordered weighted losses, stochastic negative mining and WARP: names, files and samples."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import losses, ops

from .formula import value_of

of_kinds = pytest.mark.parametrize("kind", ["pairwise", "binary"])


def loss_of(scores, class_ids, relevance=None, **kwargs):
    return value_of(losses.OrderedWeightedLoss(**kwargs), scores, class_ids, relevance)


@keras.utils.register_keras_serializable(package="test_ordered_weighted_loss")
def cubic_hinge(margins):
    return tf.nn.relu(1 - margins) ** 3


@pytest.fixture
def lists(rng):
    return rng.normal(size=(6, 5)), rng.integers(0, 5, 6)


def test_the_support_vector_machines_of_the_papers(lists):
    scores, ids = lists
    loss = losses.OrderedWeightedLoss
    of_y = np.take_along_axis(scores, ids[:, None], axis=1)
    others = np.array([np.delete(row, y) for row, y in zip(scores, ids, strict=True)])
    hinges = np.sort(np.maximum(0, 1 - (of_y - others)), axis=1)
    signs = 2 * np.eye(5)[ids] - 1
    for made, expected in (
        (loss.crammer_singer(reduction="none"), hinges[:, -1]),
        (loss.weston_watkins(reduction="none"), hinges.sum(axis=1)),
        (loss.lee(reduction="none"), np.maximum(0, 1 - signs * scores).sum(axis=1)),
        (loss.top_k_svm(3, reduction="none"), hinges[:, -3:].mean(axis=1)),
    ):
        np.testing.assert_allclose(made(ids, scores), expected, rtol=1e-6)


def test_a_phi_of_ones_own_is_saved_with_a_model(lists, tmp_path):
    (scores, ids), weights = lists, np.array([1.0, 0.5])
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(5)])
    model.compile("sgd", loss=losses.OrderedWeightedLoss("binary", cubic_hinge, weights))
    model.save(tmp_path / "m.keras")
    loss = keras.models.load_model(tmp_path / "m.keras").loss
    assert loss.phi == cubic_hinge
    assert loss.rank_weights == ops.get_rank_weights(weights)
    np.testing.assert_allclose(loss(ids, scores), model.loss(ids, scores), rtol=1e-12)


def mined(scores, class_ids, relevance=None, weights=(1.0,), **kwargs):
    loss = losses.StochasticNegativeMiningLoss(rank_weights=weights, seed=1, **kwargs)
    return value_of(loss, scores, class_ids, relevance)


@of_kinds
def test_lists_with_few_negatives_take_all(rng, kind):
    scores = rng.normal(size=(2, 8))
    scores[0, 4:] = -np.inf
    lists = scores, np.array([[1, -1], [0, 2]]), np.array([[2.0, 0], [1, 3]])
    weights = ops.TopKWeights(3)
    drawn = mined(*lists, num_sampled=6, kind=kind, weights=weights)
    np.testing.assert_allclose(drawn, loss_of(*lists, kind=kind, rank_weights=weights), rtol=1e-12)


@pytest.mark.parametrize("num_sampled", [4, 100])
def test_as_many_as_there_are_means_no_sampling_and_says_so(rng, num_sampled):
    scores = rng.normal(size=(3, 5))
    class_ids = [[0], [1], [4]]
    loss = losses.StochasticNegativeMiningLoss(num_sampled, seed=1)
    loss = functools.partial(value_of, loss, class_ids=class_ids)
    for function in (loss, tf.function(loss)):
        with pytest.warns(UserWarning, match=rf"num_sampled={num_sampled} is at least the number"):
            drawn = function(tf.constant(scores))
        np.testing.assert_allclose(drawn, loss_of(scores, class_ids), rtol=1e-14)


@pytest.mark.parametrize(
    "loss",
    [
        losses.StochasticNegativeMiningLoss(1, rank_weights=[1.0], seed=1),
        losses.WARPLoss(num_trials=1, seed=1),
        losses.WARPLoss(),
    ],
)
def test_a_nan_shows_though_it_is_not_sampled(loss, rng):
    scores = rng.normal(size=(3, 300))
    scores[0, 150] = scores[1, 1] = np.nan
    np.testing.assert_array_equal(
        np.isnan(value_of(loss, scores, [[0], [1], [2]])), [True, True, False]
    )


def test_warp_of_sampled_lists_without_negatives():
    scores = np.array([[1.0, -np.inf, -np.inf], [0.0, 0.5, 0.5]])
    loss = losses.WARPLoss([1.0, 0.5], num_trials=5, seed=1)
    # In the second list any draw violates: L(2 / 1) * (0.5 + 1).
    np.testing.assert_allclose(value_of(loss, scores, [[0], [0]]), [0.0, 1.5 * 1.5], rtol=1e-12)
