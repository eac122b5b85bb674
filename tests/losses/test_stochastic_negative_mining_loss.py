"""Stochastic negative mining: what is sampled, and what its mean is."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses, ops

from . import oracles
from .formula import value_of
from .training import step

KINDS = ["pairwise", "binary"]


def formula(weights=(1.0,), **kwargs):
    """A function of scores, class ids and relevance."""
    loss = losses.StochasticNegativeMiningLoss(rank_weights=weights, seed=1, **kwargs)
    return functools.partial(value_of, loss)


def loss(scores, class_ids, relevance=None, **kwargs):
    return formula(**kwargs)(scores, class_ids, relevance)


def subset_losses(scores, y, num_sampled, factor, weights, **kwargs):
    """Algorithm 1 for every subset of the negatives."""
    negatives = np.delete(scores, y)
    weights = factor * weights.first(num_sampled, tf.float64).numpy()
    return np.array(
        [
            value_of(
                losses.OrderedWeightedLoss(rank_weights=weights, **kwargs),
                [[scores[y], *negatives[list(s)]]],
                [0],
            ).numpy()[0]
            for s in itertools.combinations(range(len(negatives)), num_sampled)
        ]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rescale", [True, False])
def test_each_loss_is_that_of_a_subset_and_all_occur(rng, kind, rescale):
    scores = rng.normal(size=6)
    kwargs = {"kind": kind, "phi": "logistic", "weights": ops.TopKWeights(2)}
    possible = subset_losses(scores, 2, 3, 5 / 3 if rescale else 1, **kwargs)
    lists = np.tile(scores, (2000, 1)), np.full((2000, 1), 2)
    drawn = loss(*lists, num_sampled=3, rescale=rescale, **kwargs).numpy()
    nearest = np.abs(drawn[:, None] - possible).argmin(axis=1)
    np.testing.assert_allclose(drawn, possible[nearest], rtol=1e-12)
    # Losses of subsets with the same two highest scores are equal.
    assert len(set(nearest)) == len(set(possible.round(12)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", [ops.TopKWeights(2), ops.UniformWeights()])
def test_unbiased(rng, kind, weights):
    """The mean of loss and gradient is the loss with the expected weights: lemma 2."""
    scores = rng.normal(size=9)
    draws = 40_000
    x = tf.constant(np.tile(scores, (draws, 1)))
    kwargs = {"kind": kind, "phi": "logistic"}
    with tf.GradientTape() as tape:
        tape.watch(x)
        drawn = loss(x, np.full((draws, 1), 4), num_sampled=3, weights=weights, **kwargs)
    gradients = tape.gradient(drawn, x).numpy()

    theta = 8 / 3 * oracles.expected_weights(weights, 3, 8)
    one = tf.constant(scores[None])
    with tf.GradientTape() as tape:
        tape.watch(one)
        expected = value_of(losses.OrderedWeightedLoss(rank_weights=theta, **kwargs), one, [[4]])
    error = drawn.numpy().std() / draws**0.5
    assert abs(drawn.numpy().mean() - expected.numpy()[0]) < 4 * error
    error = gradients.std(axis=0) / draws**0.5
    difference = np.abs(gradients.mean(axis=0) - tape.gradient(expected, one).numpy()[0])
    # With all weights equal, the positive's own binary term has no variance at all.
    assert (difference < 4 * error + 1e-12).all()


def test_no_positive_and_no_missing_item_is_sampled():
    """Those would be the only ones with a loss."""
    scores = np.full((400, 12), -50.0)
    class_ids = np.tile([3, 7, -1, 0], (400, 1))
    scores[:, [3, 7, 0]] = 10.0, 20.0, 30.0
    scores[:, [4, 5]] = -np.inf
    weights = ops.UniformWeights()
    drawn = loss(scores, class_ids, num_sampled=4, weights=weights).numpy()
    np.testing.assert_array_equal(drawn, np.zeros(400))
    # Here the six negatives count alike: 3 positives * 7 / 4 * 4 sampled * phi.
    scores[scores == -50] = 10.0
    drawn = loss(scores, class_ids, num_sampled=4, weights=weights).numpy()
    np.testing.assert_allclose(drawn, np.full(400, 7 / 4 * 4 * 1.0), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_with_few_negatives_take_all(rng, kind):
    scores = rng.normal(size=(2, 8))
    scores[0, 4:] = -np.inf
    class_ids, relevance = np.array([[1, -1], [0, 2]]), np.array([[2.0, 0], [1, 3]])
    weights = ops.TopKWeights(3)
    drawn = loss(scores, class_ids, relevance, num_sampled=6, kind=kind, weights=weights)
    expected = value_of(
        losses.OrderedWeightedLoss(kind, rank_weights=weights), scores, class_ids, relevance
    )
    np.testing.assert_allclose(drawn, expected, rtol=1e-12)


@pytest.mark.parametrize("num_sampled", [4, 5, 100])
def test_as_many_as_there_are_means_no_sampling_and_says_so(rng, num_sampled):
    scores = rng.normal(size=(3, 5))
    class_ids = [[0], [1], [4]]
    loss = formula(num_sampled=num_sampled)
    for function in (loss, tf.function(loss)):
        with pytest.warns(UserWarning, match=rf"num_sampled={num_sampled} is at least the number"):
            drawn = function(tf.constant(scores), class_ids)
        expected = value_of(losses.OrderedWeightedLoss(rank_weights=[1.0]), scores, class_ids)
        np.testing.assert_allclose(drawn, expected, rtol=1e-14)


def test_unsampled_nan_shows(rng):
    scores = rng.normal(size=(2, 300))
    scores[1, 7] = np.nan
    drawn = loss(scores, [[0], [1]], num_sampled=1).numpy()
    np.testing.assert_array_equal(np.isnan(drawn), [False, True])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_and_xla_equal_eager(rng, jit_compile):
    scores = tf.constant(rng.normal(size=(4, 20)))
    ids = tf.constant([[0, -1], [4, 2], [1, -1], [-1, -1]])
    loss = formula(ops.TopKWeights(2, tail=0.1), num_sampled=6)

    def function(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss(scores, ids)
        return value, tape.gradient(value, scores)

    compiled = tf.function(function, jit_compile=jit_compile)
    for actual, expected in zip(compiled(scores), function(scores), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
    unknown = tf.function(
        function, input_signature=[tf.TensorSpec([None, None], tf.float64)], jit_compile=jit_compile
    )
    np.testing.assert_allclose(unknown(scores)[0], function(scores)[0], rtol=1e-12)


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
    theta = 8 / 3 * oracles.expected_weights(ops.TopKWeights(2), 3, 8)
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
    with pytest.warns(UserWarning, match="num_sampled=3 is at least the number of negatives"):
        value = mining(3)(ids, scores)
    expected = losses.OrderedWeightedLoss(reduction="none")(ids, scores)
    np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mining(0), "`num_sampled` must be a positive integer"),
        (
            lambda: mining(3, rank_weights=ops.TopKWeights(4)),
            "at most num_sampled=3 leading weights.*k=4",
        ),
        (lambda: mining(3, rank_weights=[1.0] * 4), "at most num_sampled=3"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
