"""Soft ranks, against NumPy, SciPy, scikit-learn, and what learned ones are made of."""

import functools
import math
import re

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats
from sklearn.isotonic import isotonic_regression
from tensorflow import keras

from rank4class_tf import ops
from rank4class_tf.layers.learned_sorters import Direction, bidirectional_lstm
from rank4class_tf.ops.soft_ranks import all_sigmoid_ranks, laplace_ranks, standardize

from ..derivatives import gradient_of, value_and_gradient
from ..losses import oracles


def of_all_pairs(share):
    """Ranks as one more than the sum of `share` over all other items."""

    def ranks(scores, temperature):
        differences = (scores[:, None, :] - scores[:, :, None]) / temperature
        return 1 + share(differences).sum(axis=2) - share(0.0)

    return ranks


def projected(scores, regularization):
    """The projection, by scikit-learn's isotonic regression (Blondel et al. 2020)."""
    ranks = np.empty_like(scores)
    for row, list_ in enumerate(scores):
        order = np.argsort(-list_, kind="stable")
        scaled = -list_[order] / regularization
        ranks[row, order] = scaled - isotonic_regression(
            scaled - np.arange(1, len(list_) + 1)
        )
    return ranks


by_laplace = of_all_pairs(stats.laplace.cdf)
by_sigmoid = of_all_pairs(special.expit)
FORMS: dict = {"laplace": (laplace_ranks, by_laplace)}
FORMS["sigmoid"] = all_sigmoid_ranks, by_sigmoid
FORMS["projected"] = ops.soft_ranks.projected_ranks, projected
forms = pytest.mark.parametrize("function, oracle", FORMS.values(), ids=FORMS)


def lists(rng, size):
    """Lists of several kinds: random, tied, evenly spaced, dense beside sparse."""
    scores = rng.normal(size=(6, size))
    scores[1] = np.round(scores[1], 1)
    scores[2] = np.linspace(1, -1, size)
    scores[3] = 0.5
    scores[4, : size // 2] = np.linspace(0, 3, size // 2)
    scores[4, size // 2 :] = -1e-3 * np.arange(size - size // 2)
    scores[5] = scores[5] ** 3
    return scores


@forms
@pytest.mark.parametrize("smoothness", [1e-4, 0.05, 0.7, 30.0])
def test_ranks_equal_the_definition(function, oracle, rng, smoothness):
    for size in (1, 2, 3, 10, 65, 300):
        scores = lists(rng, size)
        expected = oracle(scores, smoothness)
        assert_allclose(function(scores, smoothness), expected, rtol=1e-10)
        single = scores.astype("float32")
        expected = oracle(single.astype(np.float64), smoothness)
        assert_allclose(function(single, smoothness), expected, rtol=2e-6, atol=1e-5)


@forms
@pytest.mark.parametrize("size", [2, 9, 40, 140])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_equal_central_differences(function, oracle, rng, size, masked):
    scores = rng.normal(size=(3, size))
    weights = rng.normal(size=(3, size))
    mask = rng.random((3, size)) < 0.7 if masked else None
    kept = np.ones_like(scores, bool) if mask is None else mask
    _, gradient = value_and_gradient(
        lambda x: function(x, 0.3, mask), scores, weights * kept
    )
    gradient = gradient.numpy()
    for row in range(3):
        keep = np.nonzero(kept[row])[0]
        s = scores[row, keep]
        w = weights[row, keep]
        expected = oracles.gradient(lambda s, w=w: oracle(s[None], 0.3)[0] @ w, s)
        assert_allclose(gradient[row, keep], expected, rtol=1e-6, atol=1e-6)
        assert_allclose(np.delete(gradient[row], keep), 0, atol=1e-12)


@pytest.mark.parametrize("num_positives", [1, 4, 8, 16])
def test_a_temperature_has_a_gradient_for_any_number_of_positives(
    rng, num_positives, in_mode
):
    scores = rng.normal(size=(2, 1000))
    ids = np.argsort(rng.random((2, 1000)), axis=1)[:, :num_positives]
    ranks = functools.partial(ops.sigmoid_ranks, scores, ids)
    compute = functools.partial(gradient_of, lambda t: ranks(temperature=t))
    differences = scores[:, None] - np.take_along_axis(scores, ids, 1)[..., None]
    slopes = -differences / 0.4**2 / (2 + 2 * np.cosh(differences / 0.4))
    assert_allclose(
        in_mode(compute)(tf.constant(0.4, tf.float64)), slopes.sum(), rtol=1e-9
    )


def test_ranks_among_positives(rng):
    scores = rng.normal(size=(1, 8))
    ids = np.array([[6, 1, -1, 3]])
    ranks = ops.sigmoid_ranks_among_positives(scores, ids, temperature=0.4)
    expected = by_sigmoid(scores[:, [6, 1, 3]], 0.4)
    assert_allclose(ranks.numpy()[:, [0, 1, 3]], expected, rtol=1e-12)


@pytest.mark.parametrize("temperature", [0.003, 0.1, 5.0])
def test_long_laplace_ranks_are_as_exact_as_float32(rng, temperature):
    size = 2000
    scores = rng.uniform(-1, 1, (2, size)).astype("float32")
    weights = rng.normal(size=(2, size)) + 10
    double = scores.astype(np.float64)
    upstream = tf.constant(weights, tf.float32)
    ranks, gradient = value_and_gradient(
        lambda x: laplace_ranks(x, temperature), scores, upstream
    )
    # Half the distance of two neighbouring float32 numbers is 6e-5 at 2,000.
    assert_allclose(ranks, by_laplace(double, temperature), atol=1e-4)
    near = np.exp(-np.abs(double[:, None, :] - double[:, :, None]) / temperature)
    pulls = np.einsum("bij,bj->bi", near, weights) - weights * near.sum(axis=2)
    pulls /= 2 * temperature
    assert_allclose(gradient, pulls, atol=2e-6 * np.abs(pulls).max())


@pytest.mark.parametrize("regularization", [1e-3, 0.1])
def test_long_projections(rng, regularization):
    scores = lists(rng, 3000)[:5]
    found = ops.soft_ranks.projected_ranks(scores, regularization)
    assert_allclose(found, projected(scores, regularization), atol=1e-7)


@pytest.mark.parametrize(
    "mode, size", [("graph", 150), ("xla", 150), ("unknown shape", 150), ("xla", 0)]
)
def test_sigmoid_ranks_by_blocks(rng, mode, size):
    """Blocks that the items do not fill; and no items."""
    scores = rng.normal(size=(2, size))
    spec = tf.TensorSpec(
        [None, None] if mode == "unknown shape" else scores.shape, tf.float64
    )
    compiled = tf.function(
        lambda x: all_sigmoid_ranks(x, 0.1), [spec], jit_compile=mode == "xla"
    )
    assert_allclose(compiled(scores), by_sigmoid(scores, 0.1), rtol=1e-12)


def test_memory_of_sigmoid_ranks_is_linear(normal):
    """No tensor holds all pairs, forward or backward."""
    size = 2000
    scores = tf.constant(normal(1, size))
    slopes = functools.partial(gradient_of, lambda x: all_sigmoid_ranks(x, 0.1))
    compute = tf.function(slopes, jit_compile=True)
    shapes = re.findall(
        r"\[([\d,]+)\]", compute.experimental_get_compiler_ir(scores)(stage="hlo")
    )
    sizes = [math.prod(int(n) for n in shape.split(",")) for shape in shapes]
    assert size <= max(sizes) < size**2 / 50


def test_soft_metrics_of_exact_ranks_are_the_metrics(rng):
    scores = rng.normal(size=8)
    labels = np.array([0, 2.0, 0, 1.0, 0, 0, 3.0, 0])
    ids = np.flatnonzero(labels)
    ranks = stats.rankdata(-scores)[ids]
    y = labels[ids]
    among = stats.rankdata(-scores[ids])
    assert_allclose(ops.expected_ranks(scores[None], ids[None])[0], ranks)
    hits = labels[np.argsort(-scores)] > 0
    precisions = np.cumsum(hits) / np.arange(1, 9)
    found = ops.soft_average_precision([ranks], [among], [y])
    assert_allclose(found, precisions[hits].mean())
    for k in range(1, 9):
        found = ops.soft_recall([ranks], [y], k, temperature=1e-3)
        assert_allclose(found, hits[:k].mean() * k / 3, atol=1e-12)


def test_soft_metrics_without_positives_or_gains_are_0():
    ranks = np.ones((1, 2))
    none = np.zeros((1, 2))
    assert ops.soft_average_precision(ranks, ranks, none) == 0
    assert ops.soft_reciprocal_rank(ranks, none) == 0
    assert ops.soft_recall(ranks, none, 3) == 0
    for width in (1, 2):
        relevance = tf.constant([[1.0, 0.0], [3.0, 0.0]])[:, :width]
        found = ops.soft_ndcg(
            tf.ones([2, width]),
            relevance,
            gain=lambda labels: tf.cast(labels >= 2, labels.dtype),
        )
        assert_array_equal(found, [0, 1])


def standard(scores):
    centred = scores - scores.mean()
    return centred / np.sqrt((centred**2).mean())


def test_standardized_scores(rng):
    for scale, shift in ((1, 0), (1e-12, 3e-13), (1e15, -7e14), (3e29, 1e29)):
        scores = (scale * rng.standard_normal((4, 9)) + shift).astype("float32")
        expected = [standard(row) for row in scores.astype(np.float64)]
        assert_allclose(standardize(tf.constant(scores)), expected, atol=3e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_standardized_scores_of_masked_items_and_their_gradient(rng, masked):
    scores, weights = rng.standard_normal((2, 2, 6))
    mask = rng.random((2, 6)) < 0.7 if masked else np.ones((2, 6), bool)
    given = np.where(mask, scores, 50), tf.constant(mask) if masked else None
    found, gradient = value_and_gradient(
        lambda x: standardize(x, given[1]), given[0], weights
    )
    gradient = gradient.numpy()
    for row, keep in enumerate(mask):
        assert_allclose(found[row][keep], standard(scores[row, keep]))
        of_row = weights[row, keep]
        expected = oracles.gradient(
            lambda s, w=of_row: standard(s) @ w, scores[row, keep]
        )
        assert_allclose(gradient[row, keep], expected, atol=1e-7)
    assert not found.numpy()[~mask].any() and not gradient[~mask].any()


@pytest.mark.parametrize(
    "scores", [[[2.0]], [[1e15, 1e15]], [[0.0, 0.0, 0.0]], [[1e-38, 2e-38]]]
)
def test_equal_scores_and_none_are_standardized_to_0(scores):
    size = len(scores[0])
    first, gradient = value_and_gradient(lambda x: standardize(x)[:, 0], scores)
    assert_allclose(first, [0], atol=1e-30)
    expected = np.where(np.arange(size) == 0, 1 - 1 / size, -1 / size)
    assert_allclose(gradient, [expected], atol=1e-6)
    none = value_and_gradient(
        lambda x: standardize(x, tf.zeros([1, size], tf.bool)), scores
    )
    assert_array_equal(none, np.zeros((2, 1, size)))


UNITS, FEATURES, LENGTH = 3, 4, 7


def lstm_weights(rng):
    shapes = [(FEATURES, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,)]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def for_keras(values):
    """The same with Keras's gate order, i, f, g, o, and all bias in the weight."""
    *kernels, bias = values
    bias = bias + np.repeat([0, 1, 0, 0], UNITS)
    parts = [np.split(x, 4, axis=-1) for x in (*kernels, bias)]
    return [np.concatenate([i, f, g, o], axis=-1) for i, f, o, g in parts]


def test_the_lstm_is_that_of_keras(rng):
    inputs = tf.constant(rng.standard_normal((2, LENGTH, FEATURES)), tf.float32)
    forward, backward = (lstm_weights(rng) for _ in range(2))
    directions = Direction(*forward), Direction(*backward)
    upstream = tf.constant(rng.standard_normal((2, LENGTH, 2 * UNITS)), tf.float32)
    layer = keras.layers.Bidirectional(keras.layers.LSTM(UNITS, return_sequences=True))
    layer.build(inputs.shape)
    layer.set_weights([*for_keras(forward), *for_keras(backward)])
    found = value_and_gradient(
        lambda x: bidirectional_lstm(x, *directions), inputs, upstream
    )
    expected = value_and_gradient(layer, inputs, upstream)
    assert_allclose(found[0], expected[0], atol=1e-6)
    assert_allclose(found[1], expected[1], atol=1e-5)
