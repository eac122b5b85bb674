"""Ordered weighted losses, stochastic negative mining and WARP: names, files and samples.

The contract compares their values and gradients with the definitions, those of samples in the mean.
"""

import functools
import itertools

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import losses, ops

from ..derivatives import value_and_gradient
from . import oracles
from .formula import value_of

KINDS = ["pairwise", "binary"]
FALLING = [ops.TopKWeights(3), ops.TopKWeights(2, 0.1), ops.UniformWeights(), [0.5, 2.0]]
of_kinds = pytest.mark.parametrize("kind", KINDS)
of_weights = pytest.mark.parametrize("weights", FALLING, ids=str)


def loss_of(scores, class_ids, relevance=None, **kwargs):
    """The loss of each list."""
    return value_of(losses.OrderedWeightedLoss(**kwargs), scores, class_ids, relevance)


def batch_of_lists(rng):
    """With items and whole lists of negatives that are not there."""
    scores = rng.normal(scale=1.5, size=(5, 9))
    scores[1, [2, 5]] = -np.inf
    scores[2, 1:] = -np.inf
    class_ids = np.array([[3, -1, -1], [0, 8, -1], [0, -1, -1], [4, 1, 7], [-1, 6, -1]])
    relevance = np.array([[1.0, 0, 0], [0.5, 2.0, 0], [1.0, 0, 0], [1, 3, 2], [0, 1.0, 0]])
    return scores, class_ids, relevance


@of_kinds
@pytest.mark.parametrize("weights", [ops.TopKWeights(2), ops.UniformWeights()])
def test_any_function_is_a_phi(rng, kind, weights):
    """Also one that does not vanish at a large margin: an item not there never reaches it."""
    scores, class_ids, relevance = batch_of_lists(rng)
    results = []
    for phi in ("logistic", lambda u: 1 + ops.get_phi("logistic")(u)):
        options = {"kind": kind, "phi": phi, "rank_weights": weights}
        loss = functools.partial(loss_of, class_ids=class_ids, relevance=relevance, **options)
        results.append(value_and_gradient(loss, scores))
    num_negatives = np.array([8, 5, 0, 6, 8])
    sums = num_negatives if weights.num_leading == 0 else np.minimum(num_negatives, 2) / 2
    added = relevance.sum(axis=1) * (sums + (kind == "binary"))
    np.testing.assert_allclose(results[1][0], results[0][0] + added, rtol=1e-12)
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-12)


@pytest.mark.parametrize("jit_compile", [False, True])
@of_weights
def test_unknown_shapes_in_graphs(rng, weights, jit_compile):
    lists = batch_of_lists(rng)
    function = tf.function(
        lambda *lists: loss_of(*lists, rank_weights=weights),
        input_signature=[tf.TensorSpec([None, None], x.dtype) for x in lists],
        jit_compile=jit_compile,
    )
    np.testing.assert_allclose(function(*lists), loss_of(*lists, rank_weights=weights), rtol=1e-12)


@keras.utils.register_keras_serializable(package="test_ordered_weighted_loss")
def cubic_hinge(margins):
    return tf.nn.relu(1 - margins) ** 3


@pytest.fixture
def lists(rng):
    """Scores and class ids."""
    return rng.normal(size=(6, 5)), rng.integers(0, 5, 6)


def test_the_support_vector_machines_of_the_papers(lists):
    scores, ids = lists
    loss = losses.OrderedWeightedLoss
    expected = sklearn.metrics.hinge_loss(ids, scores, labels=range(5))
    np.testing.assert_allclose(loss.crammer_singer()(ids, scores), expected, rtol=1e-6)
    assert (scores.max(axis=1) > 0).all()  # Keras's takes the scores of the others as at least 0.
    peer = keras.losses.CategoricalHinge()(tf.one_hot(ids, 5, dtype=tf.float64), scores)
    np.testing.assert_allclose(loss.crammer_singer()(ids, scores), peer, rtol=1e-6)

    of_y = np.take_along_axis(scores, ids[:, None], axis=1)
    others = np.array([np.delete(row, y) for row, y in zip(scores, ids, strict=True)])
    hinges = np.sort(np.maximum(0, 1 - (of_y - others)), axis=1)
    signs = 2 * np.eye(5)[ids] - 1
    for made, expected in (
        (loss.weston_watkins(reduction="none"), hinges.sum(axis=1)),
        (loss.lee(reduction="none"), np.maximum(0, 1 - signs * scores).sum(axis=1)),
        (loss.top_k_svm(3, reduction="none"), hinges[:, -3:].mean(axis=1)),
    ):
        np.testing.assert_allclose(made(ids, scores), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("phi", "weights"),
    [
        ("logistic", ops.TopKWeights(2, tail=0.1)),
        (ops.Ramp(0.5), ops.UniformWeights()),
        (ops.Scaled("hinge", 3.0), ops.StaircaseWeights([(1, 2.0), (3, 0.5)], tail=0.1)),
        (cubic_hinge, np.array([1.0, 0.5])),
        ("hinge", ops.PowerLawWeights(0.5)),
    ],
)
def test_saved_with_a_model(lists, tmp_path, phi, weights):
    scores, ids = lists
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(5)])
    model.compile("sgd", loss=losses.OrderedWeightedLoss("binary", phi, weights))
    model.save(tmp_path / "m.keras")
    loss = keras.models.load_model(tmp_path / "m.keras").loss
    assert loss.phi == phi
    assert loss.rank_weights == ops.get_rank_weights(weights)
    np.testing.assert_allclose(loss(ids, scores), model.loss(ids, scores), rtol=1e-12)


def mined(scores, class_ids, relevance=None, weights=(1.0,), **kwargs):
    loss = losses.StochasticNegativeMiningLoss(rank_weights=weights, seed=1, **kwargs)
    return value_of(loss, scores, class_ids, relevance)


@of_kinds
@pytest.mark.parametrize("rescale", [True, False])
def test_each_mined_loss_is_that_of_a_subset_and_all_occur(rng, kind, rescale):
    """Algorithm 1."""
    scores, weights = rng.normal(size=6), ops.TopKWeights(2)
    of_loss = {"kind": kind, "phi": "logistic"}
    theta = (5 / 3 if rescale else 1) * oracles.theta_of(weights, 3)
    subsets = itertools.combinations([0, 1, 3, 4, 5], 3)
    possible = [
        oracles.ordered_weighted(scores[[2, *s]], np.eye(4)[0], rank_weights=theta, **of_loss)
        for s in subsets
    ]
    lists = np.tile(scores, (2000, 1)), np.full((2000, 1), 2)
    drawn = mined(*lists, num_sampled=3, rescale=rescale, weights=weights, **of_loss).numpy()
    nearest = np.abs(drawn[:, None] - possible).argmin(axis=1)
    np.testing.assert_allclose(drawn, np.array(possible)[nearest], rtol=1e-12)
    # Losses of subsets with the same two highest scores are equal.
    assert len(set(nearest)) == len(set(np.round(possible, 12)))


def test_no_positive_and_no_missing_item_is_sampled():
    """Those would be the only ones with a loss."""
    scores = np.full((400, 12), -50.0)
    class_ids = np.tile([3, 7, -1, 0], (400, 1))
    scores[:, [3, 7, 0]] = 10.0, 20.0, 30.0
    scores[:, [4, 5]] = -np.inf
    weights = ops.UniformWeights()
    drawn = mined(scores, class_ids, num_sampled=4, weights=weights).numpy()
    np.testing.assert_array_equal(drawn, np.zeros(400))
    # Here the six negatives count alike: 3 positives * 7 / 4 * 4 sampled * phi.
    scores[scores == -50] = 10.0
    drawn = mined(scores, class_ids, num_sampled=4, weights=weights).numpy()
    np.testing.assert_allclose(drawn, np.full(400, 7 / 4 * 4 * 1.0), rtol=1e-12)


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


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda seed: losses.StochasticNegativeMiningLoss(
            6, rank_weights=ops.TopKWeights(2, tail=0.1), seed=seed
        ),
        lambda seed: losses.WARPLoss([1.0, 0.5, 0.25], num_trials=4, seed=seed),
    ],
    ids=["mining", "warp"],
)
def test_samples_depend_on_the_seed_alone(rng, make, jit_compile):
    scores = tf.constant(rng.normal(size=(4, 20)))
    ids = tf.constant([[0, -1], [4, 2], [1, -1], [-1, -1]])
    formula = functools.partial(value_of, make(1), class_ids=ids)
    function = functools.partial(value_and_gradient, formula)
    for shape in ([4, 20], [None, None]):
        spec = [tf.TensorSpec(shape, tf.float64)]
        compiled = tf.function(function, spec, jit_compile=jit_compile)
        for actual, expected in zip(compiled(scores), function(scores), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert (value_of(make(2), scores, ids).numpy() != function(scores)[0].numpy()).any()


def test_warp_of_sampled_lists_without_negatives():
    scores = np.array([[1.0, -np.inf, -np.inf], [0.0, 0.5, 0.5]])
    loss = losses.WARPLoss([1.0, 0.5], num_trials=5, seed=1)
    # In the second list any draw violates: L(2 / 1) * (0.5 + 1).
    np.testing.assert_allclose(value_of(loss, scores, [[0], [0]]), [0.0, 1.5 * 1.5], rtol=1e-12)


def test_warp_draws_until_it_finds(rng):
    """The more trials, the more positives have a loss; an exact rank needs none."""
    scores = tf.constant(rng.normal(size=(200, 50)) * 3)
    ids = tf.argsort(scores, axis=1)[:, -3]
    found = [
        (losses.WARPLoss(num_trials=trials, seed=1, reduction="none")(ids, scores).numpy() > 0)
        for trials in (1, 8, 400)
    ]
    assert 0 < found[0].mean() < found[1].mean() < found[2].mean()
    # After more draws than there are negatives the estimated rank is 0, and so is the loss.
    assert found[2].mean() < 1
    assert (losses.WARPLoss(reduction="none")(ids, scores).numpy() > 0).all()
