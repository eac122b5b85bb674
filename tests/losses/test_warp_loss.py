"""WARP against its definition, and the mean of its sampled form against the exact distribution."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses, ops

from .formula import value_of

THETA = [1.0, 0.5, 0.25, 0.125]


def rank_weight(rank):
    return sum(THETA[: int(rank)])


def oracle(scores, class_ids, relevance, margin):
    """Loss and gradient of one list by its definition."""
    positives = {y: w for y, w in zip(class_ids, relevance, strict=True) if y >= 0 and w > 0}
    loss, gradient = 0.0, np.zeros(len(scores))
    for y, w in positives.items():
        violators = [
            i
            for i in range(len(scores))
            if i not in positives and scores[i] > -np.inf and scores[i] - scores[y] + margin > 0
        ]
        for i in violators:
            factor = w * rank_weight(len(violators)) / len(violators)
            loss += factor * (scores[i] - scores[y] + margin)
            gradient[i] += factor
            gradient[y] -= factor
    return loss, gradient


def lists_of(rng):
    scores = rng.normal(size=(4, 8))
    scores[1, [2, 5]] = -np.inf
    scores[3, 6] = 9.0
    class_ids = np.array([[3, -1, -1], [0, 7, -1], [4, 1, 7], [-1, 6, -1]])
    relevance = np.array([[1.0, 0, 0], [0.5, 2.0, 0], [1, 3, 2], [0, 1.0, 0]])
    return scores, class_ids, relevance


@pytest.mark.parametrize("margin", [0.3, 1.0])
def test_exact_equals_the_definition(rng, margin):
    lists = lists_of(rng)
    scores = tf.constant(lists[0])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = value_of(losses.WARPLoss(THETA, margin), scores, *lists[1:])
    expected = [oracle(*one, margin) for one in zip(*lists, strict=True)]
    np.testing.assert_allclose(value, [e[0] for e in expected], rtol=1e-12)
    gradient = tape.gradient(value, scores)
    np.testing.assert_allclose(gradient, [e[1] for e in expected], rtol=1e-12, atol=1e-14)
    assert value[3] == 0 and value[0] > 0


def test_uniform_weights_are_weston_watkins(rng):
    """L(s) / s = 1, in words: WARP is the pairwise loss reweighted."""
    lists = lists_of(rng)
    weights = ops.UniformWeights()
    expected = value_of(losses.OrderedWeightedLoss(rank_weights=weights), *lists)
    np.testing.assert_allclose(value_of(losses.WARPLoss(weights), *lists), expected, rtol=1e-12)


@pytest.mark.parametrize("num_trials", [1, 2, 3, 7])
def test_sampled_has_the_mean_of_its_distribution(rng, num_trials):
    """The t-th draw is the first violator with probability (1 - q)^(t - 1) q, q = s / N."""
    scores = np.array([0.4, 0.1, -0.3, -2.0, -3.0, 5.0, -np.inf, -1.0])
    class_ids, relevance = [0, 5, 7], [1.0, 0.5, 2.0]
    positives = dict(zip(class_ids, relevance, strict=True))
    negatives = np.array([scores[i] for i in (1, 2, 3, 4)])
    expected, gradient = 0.0, np.zeros(8)
    for y, w in positives.items():
        violators = [i for i in (1, 2, 3, 4) if scores[i] - scores[y] + 1 > 0]
        q = len(violators) / len(negatives)
        for t in range(1, num_trials + 1):
            for i in violators:
                factor = (1 - q) ** (t - 1) / len(negatives) * w * rank_weight(4 // t)
                expected += factor * (scores[i] - scores[y] + 1)
                gradient[i] += factor
                gradient[y] -= factor

    draws = 20_000
    x = tf.constant(np.tile(scores, (draws, 1)))
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = value_of(
            losses.WARPLoss(THETA, num_trials=num_trials, seed=1),
            x,
            np.tile(class_ids, (draws, 1)),
            np.tile(relevance, (draws, 1)),
        )
    error = value.numpy().std() / draws**0.5
    assert 0 < error < expected / 50
    assert abs(value.numpy().mean() - expected) < 4 * error
    gradients = tape.gradient(value, x).numpy()
    error = gradients.std(axis=0) / draws**0.5
    assert (np.abs(gradients.mean(axis=0) - gradient) <= 4 * error).all()


def test_sampled_depends_only_on_its_seed(rng):
    scores = rng.normal(size=(5, 40))
    ids = np.arange(5)[:, None]

    def of_seed(seed):
        loss = losses.WARPLoss(THETA, num_trials=4, seed=seed)
        return lambda scores: value_of(loss, scores, ids)

    first = of_seed(1)(scores).numpy()
    for jit_compile in (False, True):
        graph = tf.function(of_seed(1), jit_compile=jit_compile)
        np.testing.assert_allclose(graph(tf.constant(scores)), first, rtol=1e-12)
    assert (of_seed(2)(scores).numpy() != first).any()


def test_sampled_lists_without_negatives():
    scores = np.array([[1.0, -np.inf, -np.inf], [0.0, 0.5, 0.5]])
    value = value_of(losses.WARPLoss(THETA, num_trials=5, seed=1), scores, [[0], [0]])
    # In the second list any draw violates: L(2 / 1) * (0.5 + 1).
    np.testing.assert_allclose(value, [0.0, 1.5 * 1.5], rtol=1e-12)


@pytest.mark.parametrize("num_trials", [None, 1])
def test_nan_shows(rng, num_trials):
    scores = rng.normal(size=(3, 200))
    scores[0, 150] = scores[1, 1] = np.nan
    loss = losses.WARPLoss(THETA, num_trials=num_trials, seed=1)
    value = value_of(loss, scores, [[0], [1], [2]])
    np.testing.assert_array_equal(np.isnan(value), [True, True, False])


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
        (lambda: losses.WARPLoss(margin=0), "`margin` must be a finite number > 0"),
        (lambda: losses.WARPLoss(num_trials=0), "`num_trials` must be a positive integer"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
