"""Losses over ordered negatives: named special cases, saved forms, fresh samples."""

import functools

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import losses, ops

from .training import step


@keras.utils.register_keras_serializable(package="test_ordered_losses")
def cubic_hinge(margins):
    return tf.nn.relu(1 - margins) ** 3


@pytest.fixture
def lists(rng):
    """Scores and class ids."""
    return rng.normal(size=(6, 5)), rng.integers(0, 5, 6)


def hinges(scores, ids):
    """`[batch, n - 1]`: 1 - (v_y - v_i) over the items but y, cut at zero."""
    of_y = np.take_along_axis(scores, ids[:, None], axis=1)
    others = np.array([np.delete(row, y) for row, y in zip(scores, ids, strict=True)])
    return np.maximum(0, 1 - (of_y - others))


def test_crammer_singer(lists):
    scores, ids = lists
    expected = sklearn.metrics.hinge_loss(ids, scores, labels=range(5))
    loss = losses.OrderedWeightedLoss.crammer_singer()
    np.testing.assert_allclose(loss(ids, scores), expected, rtol=1e-6)
    peer = keras.losses.CategoricalHinge()(tf.one_hot(ids, 5, dtype=tf.float64), scores)
    positive = scores.max(axis=1) > 0  # Keras's takes the scores of the others as at least 0.
    assert positive.all()
    np.testing.assert_allclose(loss(ids, scores), peer, rtol=1e-6)


def test_weston_watkins(lists):
    scores, ids = lists
    loss = losses.OrderedWeightedLoss.weston_watkins(reduction="none")
    np.testing.assert_allclose(loss(ids, scores), hinges(scores, ids).sum(axis=1), rtol=1e-6)


def test_lee(lists):
    scores, ids = lists
    signs = 2 * np.eye(5)[ids] - 1
    loss = losses.OrderedWeightedLoss.lee(reduction="none")
    expected = np.maximum(0, 1 - signs * scores).sum(axis=1)
    np.testing.assert_allclose(loss(ids, scores), expected, rtol=1e-6)


def test_top_k_svm(lists):
    scores, ids = lists
    loss = losses.OrderedWeightedLoss.top_k_svm(3, reduction="none")
    expected = np.sort(hinges(scores, ids), axis=1)[:, -3:].mean(axis=1)
    np.testing.assert_allclose(loss(ids, scores), expected, rtol=1e-6)


@pytest.mark.parametrize("phi", ["logistic", ops.Ramp(0.5), ops.Scaled("hinge", 3.0), cubic_hinge])
@pytest.mark.parametrize(
    "weights",
    [
        ops.TopKWeights(2, tail=0.1),
        ops.UniformWeights(),
        ops.PowerLawWeights(0.5),
        ops.StaircaseWeights([(1, 2.0), (3, 0.5)], tail=0.1),
        np.array([1.0, 0.5]),
    ],
    ids=lambda weights: type(weights).__name__,
)
def test_saved_with_a_model(lists, tmp_path, phi, weights):
    scores, ids = lists
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(5)])
    model.compile("sgd", loss=losses.OrderedWeightedLoss("binary", phi, weights))
    path = str(tmp_path / "m.keras")
    model.save(path)
    loss = keras.models.load_model(path).loss
    assert loss.phi == phi
    assert loss.rank_weights == ops.get_rank_weights(weights)
    np.testing.assert_allclose(loss(ids, scores), model.loss(ids, scores), rtol=1e-12)


def mining(num_sampled=3, **kwargs):
    return losses.StochasticNegativeMiningLoss(num_sampled, reduction="none", **kwargs)


def test_mining_is_fresh_at_each_step_and_repeats_with_its_seed(rng):
    scores = tf.constant(rng.normal(size=(8, 30)))
    ids = tf.range(8)
    runs = []
    for _ in range(2):
        loss = mining(seed=5)
        runs.append([step(loss, ids, scores).numpy() for _ in range(3)])
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0][0] != runs[0][1]).any() and (runs[0][1] != runs[0][2]).any()
    assert (mining(seed=6)(ids, scores).numpy() != runs[0][0]).any()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_mining_is_fresh_in_graphs(rng, jit_compile):
    loss = mining(seed=5)
    graph = tf.function(functools.partial(step, loss), jit_compile=jit_compile)
    scores = tf.constant(rng.normal(size=(8, 30)))
    first, second = graph(tf.range(8), scores), graph(tf.range(8), scores)
    assert (first.numpy() != second.numpy()).any()


def test_mining_estimates_the_ordered_weighted_loss(rng):
    """The mean over many steps, in a graph, is the loss with the expected weights."""
    scores = tf.constant(rng.normal(size=(4, 9)))
    ids = tf.range(4)
    loss = mining(kind="binary", phi="logistic", rank_weights=ops.TopKWeights(2), seed=1)
    graph = tf.function(functools.partial(step, loss))
    steps = np.array([graph(ids, scores).numpy() for _ in range(600)])
    theta = 8 / 3 * ops.snm_expected_weights(ops.TopKWeights(2), 3, 8).numpy()
    expected = losses.OrderedWeightedLoss("binary", "logistic", theta, reduction="none")
    error = steps.std(axis=0) / len(steps) ** 0.5
    assert (np.abs(steps.mean(axis=0) - expected(ids, scores)) < 4 * error).all()


def test_replicas_sample_apart(rng, two_devices):
    scores = tf.constant(np.tile(rng.normal(size=40), (16, 1)))
    ids = tf.zeros(16, tf.int32)
    with two_devices.scope():
        loss = mining(seed=2)
    per_replica = two_devices.run(tf.function(loss), (ids, scores))
    first, second = (x.numpy() for x in two_devices.experimental_local_results(per_replica))
    assert (first != second).any()


def test_mining_without_rescaling_is_a_mean(rng):
    """Two classes tie, so that any sample has the same loss: the factor alone differs."""
    scores = [[1.0, 0.5, 0.5, 0.5, 0.5]]
    for rescale, factor in ((True, 4 / 2), (False, 1.0)):
        loss = mining(2, rank_weights=ops.TopKWeights(2), rescale=rescale)
        np.testing.assert_allclose(loss([0], scores), [factor * 0.5], rtol=1e-6)


def test_mining_more_than_there_are_warns(rng):
    scores, ids = rng.normal(size=(3, 4)), [0, 1, 2]
    with pytest.warns(UserWarning, match="num_sampled=3 is no less than the number of negatives"):
        value = mining(3)(ids, scores)
    expected = losses.OrderedWeightedLoss(reduction="none")(ids, scores)
    np.testing.assert_allclose(value, expected, rtol=1e-6)


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.OrderedWeightedLoss(kind="listwise"), "`kind` must be one of"),
        (lambda: losses.OrderedWeightedLoss(phi="cosine"), "`phi` must be one of"),
        (lambda: losses.OrderedWeightedLoss(rank_weights=[-1.0]), "`rank_weights` must hold"),
        (lambda: losses.OrderedWeightedLoss(rank_weights=3), "`rank_weights` must be a list"),
        (lambda: losses.OrderedWeightedLoss.top_k_svm(0), "`k` must be a positive integer"),
        (lambda: mining(0), "`num_sampled` must be a positive integer"),
        (lambda: mining(3, rank_weights=ops.TopKWeights(4)), "at most num_sampled=3"),
        (lambda: mining(3, rank_weights=[1.0] * 4), "at most num_sampled=3"),
        (lambda: losses.WARPLoss(margin=0), "`margin` must be a finite number > 0"),
        (lambda: losses.WARPLoss(num_trials=0), "`num_trials` must be a positive integer"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
