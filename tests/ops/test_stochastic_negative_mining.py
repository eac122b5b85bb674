"""Stochastic negative mining: what is sampled, and what its mean is."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import ops

KINDS = ["pairwise", "binary"]


def loss(scores, class_ids, relevance=None, seed=(1, 2), weights=(1.0,), **kwargs):
    return ops.stochastic_negative_mining_loss(
        scores, class_ids, relevance, seed=seed, rank_weights=weights, **kwargs
    )


def subset_losses(scores, y, num_sampled, factor, weights, **kwargs):
    """Algorithm 1 for every subset of the negatives."""
    negatives = np.delete(scores, y)
    weights = factor * weights.first(num_sampled, tf.float64).numpy()
    return np.array(
        [
            ops.ordered_weighted_loss(
                [[scores[y], *negatives[list(s)]]], [0], rank_weights=weights, **kwargs
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
        losses = loss(x, np.full((draws, 1), 4), num_sampled=3, weights=weights, **kwargs)
    gradients = tape.gradient(losses, x).numpy()

    theta = 8 / 3 * ops.snm_expected_weights(weights, 3, 8).numpy()
    one = tf.constant(scores[None])
    with tf.GradientTape() as tape:
        tape.watch(one)
        expected = ops.ordered_weighted_loss(one, [[4]], rank_weights=theta, **kwargs)
    error = losses.numpy().std() / draws**0.5
    assert abs(losses.numpy().mean() - expected.numpy()[0]) < 4 * error
    error = gradients.std(axis=0) / draws**0.5
    difference = np.abs(gradients.mean(axis=0) - tape.gradient(expected, one).numpy()[0])
    # With all weights equal, the positive's own binary term has no variance at all.
    assert (difference < 4 * error + 1e-12).all()


def test_expected_weights_of_rescaled_top_k():
    """Lemma 2: a valid surrogate, the first k weights are 1 / k; uniform ones are 1."""
    theta = 30 / 7 * ops.snm_expected_weights(ops.TopKWeights(3), 7, 30).numpy()
    np.testing.assert_allclose(theta[:3], [1 / 3] * 3, rtol=1e-12)
    theta = 30 / 7 * ops.snm_expected_weights(ops.UniformWeights(), 7, 30).numpy()
    np.testing.assert_allclose(theta, np.ones(30), rtol=1e-12)


def test_no_positive_and_no_missing_item_is_sampled():
    """Those would be the only ones with a loss."""
    scores = np.full((400, 12), -50.0)
    class_ids = np.tile([3, 7, -1, 0], (400, 1))
    scores[:, [3, 7, 0]] = 10.0, 20.0, 30.0
    scores[:, [4, 5]] = -np.inf
    weights = ops.UniformWeights()
    losses = loss(scores, class_ids, num_sampled=4, weights=weights).numpy()
    np.testing.assert_array_equal(losses, np.zeros(400))
    # Here the six negatives count alike: 3 positives * 7 / 4 * 4 sampled * phi.
    scores[scores == -50] = 10.0
    losses = loss(scores, class_ids, num_sampled=4, weights=weights).numpy()
    np.testing.assert_allclose(losses, np.full(400, 7 / 4 * 4 * 1.0), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_with_few_negatives_take_all(rng, kind):
    scores = rng.normal(size=(2, 8))
    scores[0, 4:] = -np.inf
    class_ids, relevance = np.array([[1, -1], [0, 2]]), np.array([[2.0, 0], [1, 3]])
    weights = ops.TopKWeights(3)
    drawn = loss(scores, class_ids, relevance, num_sampled=6, kind=kind, weights=weights)
    expected = ops.ordered_weighted_loss(
        scores, class_ids, relevance, kind=kind, rank_weights=weights
    )
    np.testing.assert_allclose(drawn, expected, rtol=1e-12)


@pytest.mark.parametrize("num_sampled", [4, 5, 100])
def test_as_many_as_there_are_means_no_sampling_and_says_so(rng, num_sampled):
    scores = rng.normal(size=(3, 5))
    class_ids = [[0], [1], [4]]
    for function in (loss, tf.function(loss)):
        with pytest.warns(UserWarning, match=rf"num_sampled={num_sampled} is no less than"):
            drawn = function(tf.constant(scores), class_ids, num_sampled=num_sampled)
        expected = ops.ordered_weighted_loss(scores, class_ids, rank_weights=[1.0])
        np.testing.assert_allclose(drawn, expected, rtol=1e-14)


def test_unsampled_nan_shows(rng):
    scores = rng.normal(size=(2, 300))
    scores[1, 7] = np.nan
    losses = loss(scores, [[0], [1]], num_sampled=1).numpy()
    np.testing.assert_array_equal(np.isnan(losses), [False, True])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_and_xla_equal_eager(rng, jit_compile):
    scores = tf.constant(rng.normal(size=(4, 20)))
    ids = tf.constant([[0, -1], [4, 2], [1, -1], [-1, -1]])
    weights = ops.TopKWeights(2, tail=0.1)

    def function(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            losses = loss(scores, ids, num_sampled=6, weights=weights)
        return losses, tape.gradient(losses, scores)

    compiled = tf.function(function, jit_compile=jit_compile)
    for actual, expected in zip(compiled(scores), function(scores), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
    unknown = tf.function(
        function, input_signature=[tf.TensorSpec([None, None], tf.float64)], jit_compile=jit_compile
    )
    np.testing.assert_allclose(unknown(scores)[0], function(scores)[0], rtol=1e-12)


def test_more_mined_than_sampled_raises():
    with pytest.raises(ValueError, match="lead with at most num_sampled=3 weights.*k=4"):
        loss([[0.0] * 9], [[0]], num_sampled=3, weights=ops.TopKWeights(4))
