"""The closed forms of soft ranks, against definitions in NumPy, SciPy and scikit-learn."""

import math
import re

import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats
from sklearn.isotonic import isotonic_regression

from rank4class_tf.ops import soft_ranks
from rank4class_tf.ops.soft_ranks import all_sigmoid_ranks, laplace_ranks, projected_ranks


def laplace(x):
    return stats.laplace.cdf(x)


def of_all_pairs(share):
    """Ranks as one more than the sum of `share` over all other items."""

    def ranks(scores, temperature):
        differences = (scores[:, None, :] - scores[:, :, None]) / temperature
        shares = share(differences)
        return 1 + shares.sum(axis=2) - share(0.0)

    return ranks


def projected(scores, regularization):
    """The projection, by scikit-learn's isotonic regression (Blondel et al. 2020)."""
    ranks = np.empty_like(scores)
    for row, list_ in enumerate(scores):
        order = np.argsort(-list_, kind="stable")
        places = np.arange(1, len(list_) + 1)
        scaled = -list_[order] / regularization
        ranks[row, order] = scaled - isotonic_regression(scaled - places)
    return ranks


FORMS = {
    "laplace": (laplace_ranks, of_all_pairs(laplace)),
    "sigmoid": (all_sigmoid_ranks, of_all_pairs(special.expit)),
    "projected": (projected_ranks, projected),
}
forms = pytest.mark.parametrize(("function", "oracle"), FORMS.values(), ids=FORMS)


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
@pytest.mark.parametrize("size", [1, 2, 3, 10, 65, 300])
@pytest.mark.parametrize("smoothness", [1e-4, 0.05, 0.7, 30.0])
def test_ranks_equal_the_definition(function, oracle, rng, size, smoothness):
    scores = lists(rng, size)
    expected = oracle(scores, smoothness)
    np.testing.assert_allclose(function(scores, smoothness), expected, rtol=1e-10)
    single = scores.astype(np.float32)
    expected = oracle(single.astype(np.float64), smoothness)
    np.testing.assert_allclose(function(single, smoothness), expected, rtol=2e-6, atol=1e-5)


@forms
@pytest.mark.parametrize("size", [2, 9, 40, 140])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_equal_central_differences(function, oracle, rng, size, masked):
    scores, weights = rng.normal(size=(3, size)), rng.normal(size=(3, size))
    mask = rng.random((3, size)) < 0.7 if masked else None
    x = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(x)
        ranks = function(x, 0.3, mask)
    kept = np.ones_like(scores, bool) if mask is None else mask
    gradient = tape.gradient(ranks, x, output_gradients=tf.constant(weights * kept)).numpy()
    step = 1e-6
    for row in range(3):
        keep = np.nonzero(kept[row])[0]
        shifts = step * np.eye(len(keep))
        up, down = (oracle(scores[row, keep] + sign * shifts, 0.3) for sign in (1, -1))
        expected = (up - down) @ weights[row, keep] / (2 * step)
        np.testing.assert_allclose(gradient[row, keep], expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(np.delete(gradient[row], keep), 0, atol=1e-12)


@forms
def test_small_temperatures_give_the_exact_ranks(function, oracle, rng):
    del oracle
    scores = np.round(rng.normal(size=(5, 200)), 2)
    expected = stats.rankdata(-scores, axis=1)
    np.testing.assert_allclose(function(scores, 1e-5), expected, rtol=1e-12)
    np.testing.assert_array_equal(function(scores.astype(np.float32), 1e-5), expected)


@pytest.mark.parametrize("temperature", [0.003, 0.1, 5.0])
def test_long_laplace_ranks_are_as_exact_as_float32(rng, temperature):
    size = 2000
    scores = rng.uniform(-1, 1, (2, size)).astype(np.float32)
    weights = rng.normal(size=(2, size)) + 10
    double = scores.astype(np.float64)
    expected = of_all_pairs(laplace)(double, temperature)
    x = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(x)
        ranks = laplace_ranks(x, temperature)
    # Half the distance of two neighbouring float32 numbers is 6e-5 at 2,000.
    np.testing.assert_allclose(ranks, expected, atol=1e-4)
    gradient = tape.gradient(ranks, x, output_gradients=tf.constant(weights, tf.float32))
    near = np.exp(-np.abs(double[:, None, :] - double[:, :, None]) / temperature)
    pulls = np.einsum("bij,bj->bi", near, weights) - weights * near.sum(axis=2)
    pulls /= 2 * temperature
    np.testing.assert_allclose(gradient, pulls, atol=2e-6 * np.abs(pulls).max())


@pytest.mark.parametrize("regularization", [1e-3, 0.1])
def test_long_projections(rng, regularization):
    scores = lists(rng, 3000)[:5]
    expected = projected(scores, regularization)
    np.testing.assert_allclose(projected_ranks(scores, regularization), expected, atol=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_isotonic_regression(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 70))
    values = np.round(rng.normal(size=(4, size)) * 3, seed % 3)
    values += np.linspace(0, rng.uniform(-10, 10), size)
    expected = [isotonic_regression(row) for row in values]
    fit = soft_ranks.isotonic_regression(tf.constant(values))
    np.testing.assert_allclose(fit, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["graph", "xla", "unknown shape"])
def test_sigmoid_ranks_by_blocks(rng, mode):
    """Blocks that the items do not fill."""
    scores = rng.normal(size=(2, 150))
    shape = [None, None] if mode == "unknown shape" else scores.shape
    compiled = tf.function(
        lambda scores: all_sigmoid_ranks(scores, 0.1),
        input_signature=[tf.TensorSpec(shape, tf.float64)],
        jit_compile=mode == "xla",
    )
    expected = of_all_pairs(special.expit)(scores, 0.1)
    np.testing.assert_allclose(compiled(scores), expected, rtol=1e-12)


def test_memory_of_sigmoid_ranks_is_linear(rng):
    """No tensor holds all pairs, forward or backward."""
    size = 2000
    scores = tf.constant(rng.normal(size=(1, size)), tf.float32)

    @tf.function(jit_compile=True)
    def compute(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            ranks = all_sigmoid_ranks(scores, 0.1)
        return tape.gradient(ranks, scores)

    lowered = compute.experimental_get_compiler_ir(scores)(stage="hlo")
    shapes = re.findall(r"\[([\d,]+)\]", lowered)
    sizes = [math.prod(int(n) for n in shape.split(",")) for shape in shapes]
    assert size < max(sizes) < size**2 / 50
