"""Ordered weighted losses against definitions 3 and 4 in NumPy, and the paper's theorems."""

import itertools
import math

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import losses, ops

from . import oracles
from .formula import value_of

PHIS = {
    "hinge": lambda u: max(0.0, 1 - u),
    "squared_hinge": lambda u: max(0.0, 1 - u) ** 2,
    "logistic": lambda u: math.log2(1 + math.exp(-u)),
    "exponential": lambda u: math.exp(-u),
    "ramp": lambda u: 1.0 if u <= 0 else max(0.0, 1 - u),
}
SLOPES = {
    "hinge": lambda u: -1.0 if u < 1 else 0.0,
    "squared_hinge": lambda u: -2 * max(0.0, 1 - u),
    "logistic": lambda u: -1 / (1 + math.exp(u)) / math.log(2),
    "exponential": lambda u: -math.exp(-u),
    "ramp": lambda u: -1.0 if 0 < u < 1 else 0.0,
}
CONVEX = sorted(set(PHIS) - {"ramp"})
LIPSCHITZ = {"hinge": 1.0, "logistic": 1 / math.log(2), "ramp": 1.0}
WEIGHTS = {
    "top 1": (ops.TopKWeights(1), lambda j: 1.0 * (j == 1)),
    "top 3": (ops.TopKWeights(3), lambda j: (j <= 3) / 3),
    "top 2 and tail": (ops.TopKWeights(2, tail=0.1), lambda j: 0.5 if j <= 2 else 0.1),
    "top 99": (ops.TopKWeights(99), lambda j: 1 / 99),
    "uniform": (ops.UniformWeights(), lambda j: 1.0),
    "power law": (ops.PowerLawWeights(0.7), lambda j: j**-0.7),
    "staircase": (
        ops.StaircaseWeights([(1, 1.0), (3, 0.4)], tail=0.2),
        lambda j: 1.0 if j == 1 else 0.4 if j <= 3 else 0.2,
    ),
    "list": ([0.5, 2.0, 0.0, 1.0], lambda j: ([0.5, 2.0, 0.0, 1.0] + [0.0] * 99)[j - 1]),
    "array": (np.array([1.0, 0.25]), lambda j: ([1.0, 0.25] + [0.0] * 99)[j - 1]),
}
KINDS = ["pairwise", "binary"]


def oracle(scores, class_ids, relevance, kind, phi, theta):
    """Loss and gradient of one list, term by term."""
    positives = [(y, w) for y, w in zip(class_ids, relevance, strict=True) if y >= 0 and w > 0]
    ids = {y for y, _ in positives}
    negatives = [i for i in range(len(scores)) if i not in ids and scores[i] > -np.inf]
    negatives.sort(key=lambda i: -scores[i])
    loss, gradient = 0.0, np.zeros(len(scores))
    for y, w in positives:
        if kind == "binary":
            loss += w * PHIS[phi](scores[y])
            gradient[y] += w * SLOPES[phi](scores[y])
        for j, i in enumerate(negatives, start=1):
            margin = scores[y] - scores[i] if kind == "pairwise" else -scores[i]
            loss += w * theta(j) * PHIS[phi](margin)
            slope = w * theta(j) * SLOPES[phi](margin)
            gradient[i] -= slope
            if kind == "pairwise":
                gradient[y] += slope
    return loss, gradient


def loss_of(scores, class_ids, relevance=None, **kwargs):
    """The loss of each list."""
    return value_of(losses.OrderedWeightedLoss(**kwargs), scores, class_ids, relevance)


def value(scores, class_ids, **kwargs):
    """The loss of one list in float64."""
    return float(loss_of([scores], [class_ids], **kwargs)[0])


def batch_of_lists(rng):
    scores = rng.normal(scale=1.5, size=(5, 9))
    scores[1, [2, 5]] = -np.inf
    scores[2, 1:] = -np.inf
    class_ids = np.array([[3, -1, -1], [0, 8, -1], [0, -1, -1], [4, 1, 7], [-1, 6, -1]])
    relevance = np.array([[1.0, 0, 0], [0.5, 2.0, 0], [1.0, 0, 0], [1, 3, 2], [0, 1.0, 0]])
    return scores, class_ids, relevance


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("name", WEIGHTS)
def test_equals_the_definition(rng, kind, phi, name):
    weights, theta = WEIGHTS[name]
    lists = batch_of_lists(rng)
    scores = tf.constant(lists[0])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        values = loss_of(scores, *lists[1:], kind=kind, phi=phi, rank_weights=weights)
    gradient = tape.gradient(values, scores)
    expected = [oracle(*one, kind, phi, theta) for one in zip(*lists, strict=True)]
    np.testing.assert_allclose(values, [e[0] for e in expected], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gradient, [e[1] for e in expected], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_many_positives_take_the_blocked_path(rng, kind):
    scores = rng.normal(size=(1, 1500))
    class_ids = rng.permutation(1500)[None, :6]
    relevance = np.array([[1.0, 2, 1, 0.5, 1, 3]])
    for name in ("top 2 and tail", "power law"):
        weights, theta = WEIGHTS[name]
        x = tf.constant(scores)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = loss_of(x, class_ids, relevance, kind=kind, phi="logistic", rank_weights=weights)
        expected = oracle(scores[0], class_ids[0], relevance[0], kind, "logistic", theta)
        np.testing.assert_allclose(loss, expected[0], rtol=1e-11)
        np.testing.assert_allclose(tape.gradient(loss, x)[0], expected[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", [ops.TopKWeights(2), ops.UniformWeights()])
def test_any_function_is_a_phi(rng, kind, weights):
    """Also one that does not vanish at a large margin: an item not there never reaches it."""
    scores, class_ids, relevance = batch_of_lists(rng)
    x = tf.constant(scores)
    results = []
    for phi in ("logistic", lambda u: 1 + ops.get_phi("logistic")(u)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            values = loss_of(x, class_ids, relevance, kind=kind, phi=phi, rank_weights=weights)
        results.append((values.numpy(), tape.gradient(values, x).numpy()))
    num_negatives = np.array([8, 5, 0, 6, 8])
    sums = num_negatives if weights.num_leading == 0 else np.minimum(num_negatives, 2) / 2
    added = relevance.sum(axis=1) * (sums + (kind == "binary"))
    np.testing.assert_allclose(results[1][0], results[0][0] + added, rtol=1e-12)
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-12)


def test_float32_is_computed_in_float32(rng):
    scores = rng.normal(size=(2, 6)).astype(np.float32)
    for weights, _ in WEIGHTS.values():
        values = loss_of(scores, [[0], [1]], phi="logistic", rank_weights=weights)
        wide = loss_of(scores.astype(np.float64), [[0], [1]], phi="logistic", rank_weights=weights)
        assert values.dtype == tf.float32 and wide.dtype == tf.float64
        np.testing.assert_allclose(values, wide, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phi", CONVEX)
@pytest.mark.parametrize("name", ["top 1", "top 3", "top 2 and tail", "uniform", "power law"])
def test_convex_on_random_segments(rng, kind, phi, name):
    """Theorem 2: weights that do not rise."""
    weights, _ = WEIGHTS[name]
    a, b = rng.normal(scale=3, size=(2, 200, 8))
    t = rng.uniform(size=(200, 1))
    y = rng.integers(0, 8, size=(200, 1))

    def loss(scores):
        return loss_of(scores, y, kind=kind, phi=phi, rank_weights=weights).numpy()

    chord = (1 - t[:, 0]) * loss(a) + t[:, 0] * loss(b)
    assert (loss((1 - t) * a + t * b) <= chord * (1 + 1e-12) + 1e-12).all()


def test_rising_weights_are_not_convex():
    """The condition of theorem 2 is needed, and the test above can fail."""
    ends = [value([0.0, x, -x], [0], rank_weights=[0.0, 1.0]) for x in (0.9, -0.9)]
    middle = value([0.0, 0.0, 0.0], [0], rank_weights=[0.0, 1.0])
    assert middle > max(ends) + 0.8


@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("k", [1, 3])
def test_bounds_the_retrieval_loss(rng, phi, k):
    """Theorem 3; twice the retrieval loss for the binary kind and convex phi. Ties are misses."""
    scores = np.round(rng.normal(size=(500, 7)) * 2) / 2
    y = rng.integers(0, 7, size=(500, 1))
    of_positive = np.take_along_axis(scores, y, axis=1)
    miss = (scores >= of_positive).sum(axis=1) > k
    assert miss.any() and not miss.all()
    for weights in (ops.TopKWeights(k), ops.TopKWeights(k, tail=0.01)):
        pairwise = loss_of(scores, y, phi=phi, rank_weights=weights).numpy()
        assert (pairwise >= miss - 1e-12).all()
        if phi in CONVEX:
            binary = loss_of(scores, y, kind="binary", phi=phi, rank_weights=weights)
            assert (binary.numpy() >= 2 * miss - 1e-12).all()


@pytest.mark.parametrize("phi", LIPSCHITZ)
@pytest.mark.parametrize("name", ["top 1", "top 3", "power law"])
def test_lipschitz(rng, phi, name):
    """Lemma 7."""
    weights, theta = WEIGHTS[name]
    theta = np.array([theta(j) for j in range(1, 8)])
    u, v = rng.normal(size=(2, 300, 8))
    v[::2] = u[::2] + 0.1 * v[::2]
    y = rng.integers(0, 8, size=(300, 1))
    of_y = np.abs(np.take_along_axis(u - v, y, axis=1)[:, 0])
    two, infinity = np.linalg.norm(u - v, axis=1), np.abs(u - v).max(axis=1)
    slope = LIPSCHITZ[phi]
    one_norm, two_norm = theta.sum(), np.linalg.norm(theta)
    bounds = {
        "pairwise": (two_norm * two + one_norm * of_y, 2 * one_norm * infinity),
        "binary": (two_norm * two + of_y, (one_norm + 1) * infinity),
    }
    for kind, limits in bounds.items():
        change = np.abs(
            loss_of(u, y, kind=kind, phi=phi, rank_weights=weights)
            - loss_of(v, y, kind=kind, phi=phi, rank_weights=weights)
        )
        assert change.max() > 0.1
        for limit in limits:
            assert (change <= slope * limit + 1e-12).all()


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("num_sampled", [1, 2, 4, 6])
def test_mean_over_all_samples_has_the_expected_weights(rng, name, num_sampled):
    """Lemma 2: the mean of algorithm 1 over all samples is the loss with the expected weights."""
    weights, _ = WEIGHTS[name]
    scores = rng.normal(size=7)
    for kind in KINDS:
        values = [
            loss_of([scores[[0, *sample]]], [0], kind=kind, phi="logistic", rank_weights=weights)
            for sample in itertools.combinations(range(1, 7), num_sampled)
        ]
        theta = oracles.expected_weights(weights, num_sampled, num_negatives=6)
        expected = value(scores, [0], kind=kind, phi="logistic", rank_weights=theta)
        np.testing.assert_allclose(np.mean(values), expected, rtol=1e-12)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", WEIGHTS)
def test_unknown_shapes_in_graphs(rng, name, jit_compile):
    weights, _ = WEIGHTS[name]
    scores, class_ids, relevance = batch_of_lists(rng)
    signature = [tf.TensorSpec([None, None], x.dtype) for x in (scores, class_ids, relevance)]
    function = tf.function(
        lambda *lists: loss_of(*lists, rank_weights=weights),
        input_signature=signature,
        jit_compile=jit_compile,
    )
    eager = loss_of(scores, class_ids, relevance, rank_weights=weights)
    np.testing.assert_allclose(function(scores, class_ids, relevance), eager, rtol=1e-12)


@keras.utils.register_keras_serializable(package="test_ordered_weighted_loss")
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.OrderedWeightedLoss(kind="listwise"), "`kind` must be one of"),
        (lambda: value([0.0, 1.0], [0], kind="both", rank_weights=[1.0]), "`kind` must be one of"),
        (lambda: losses.OrderedWeightedLoss(phi="cosine"), "`phi` must be one of"),
        (lambda: losses.OrderedWeightedLoss(rank_weights=[-1.0]), "`rank_weights` must hold"),
        (lambda: losses.OrderedWeightedLoss(rank_weights=3), "`rank_weights` must be a list"),
        (lambda: losses.OrderedWeightedLoss.top_k_svm(0), "`k` must be a positive integer"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
