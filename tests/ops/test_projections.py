"""Projections on the (n, k)-simplex against references by bisection and entmax."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from rank4class_tf import ops

from ..derivatives import gradient_of, value_and_gradient
from ..losses import oracles
from . import projections
from .test_arguments import LINEAR

EXPONENTIAL = ops.Regularizer(lambda u: tf.exp(u - 1), lambda x: tf.math.xlogy(x, x))


def separable(regularizer):
    return lambda z, k, alpha=1.0: ops.simplex_projection(z, regularizer, k, alpha)


PROJECTIONS = {
    "euclidean": (ops.euclidean_projection, projections.euclidean),
    "entropy": (ops.entropy_projection, projections.entropy),
    "separable euclidean": (separable(LINEAR), projections.euclidean),
    "separable entropy": (separable(EXPONENTIAL), projections.entropy),
}
every_projection = pytest.mark.parametrize("project, reference", PROJECTIONS.values())


@every_projection
@pytest.mark.parametrize("seed", range(8))
def test_value_and_jacobian_against_bisection(project, reference, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    k = int(rng.integers(1, n))
    alpha = rng.choice([0.3, 1.0, 2.0])
    z, weights = rng.normal(size=(2, n)) * 1.5
    of_lists = value_and_gradient(
        lambda z: project(z, k, alpha), z[None], weights[None]
    )
    x, gradient = (found.numpy()[0] for found in of_lists)
    assert_allclose(x, reference(z, k, alpha), atol=1e-9)
    expected = oracles.gradient(lambda z: weights @ reference(z, k, alpha), z)
    assert_allclose(gradient, expected, atol=1e-6)
    assert_allclose(gradient.sum(), 0, atol=1e-9)


@every_projection
def test_alpha_per_example_and_its_gradient(project, reference, rng):
    z = rng.normal(size=(2, 6))
    alpha = np.array([0.5, 2.0])
    expected = [reference(row, 2, a) for row, a in zip(z, alpha, strict=True)]
    for given in (alpha, [*alpha]):
        assert_allclose(project(z, 2, given), expected, atol=1e-9)
    weights = rng.normal(size=6)
    found = gradient_of(
        lambda a: project(z[:1], 2, a) * weights, tf.constant(0.8, tf.float64)
    )
    numeric = oracles.gradient(lambda a: weights @ reference(z[0], 2, a[0]), [0.8])
    assert_allclose(found, numeric[0], atol=1e-6)


def test_the_conjugate_of_an_item_far_below_is_0():
    scores = tf.constant([-np.inf, -1.0, 0.5, 2.0])
    assert_array_equal(LINEAR.conjugate(scores, tf.constant(0.0)), [0, 0, 0.125, 1.5])


@pytest.mark.parametrize("n", [50, 10_000])
def test_many_shares_sum_to_k_in_float32(n, rng):
    z = rng.normal(size=(8, n)) * 10 ** rng.uniform(-5, 0, size=(8, 1)) / np.sqrt(n)
    for project, _ in PROJECTIONS.values():
        x = project(z.astype("float32"), 1).numpy()
        assert_allclose(x.astype(np.float64).sum(axis=1), 1, atol=5e-6)


@every_projection
def test_selecting_all_and_ties(project, reference):
    z = np.array([[0.3, -1.0, 2.0, 0.4]])
    assert_allclose(project(z, 4), np.ones((1, 4)), atol=1e-9)
    ties = project(np.array([[9.0, 1.0, 1.0, -9.0]]), 2, 50.0)
    assert_allclose(ties, [[1, 0.5, 0.5, 0]], atol=1e-9)


@pytest.mark.parametrize("name", ["euclidean", "entropy"])
def test_softmax_and_masks_and_nan(name, normal):
    project, reference = PROJECTIONS[name]
    z = normal(1, 6)
    if name == "entropy":
        assert_allclose(project(z, 1), tf.nn.softmax(z), rtol=1e-5)
    masked = np.insert(z, 2, -np.inf, axis=1)
    expected = np.insert(project(z, 3), 2, 0.0, axis=1)
    assert_allclose(project(masked, 3), expected, atol=1e-6)
    few = np.array([[1.0, -np.inf, 0.0, -np.inf]], "float32")
    assert_array_equal(project(few, 3), [[1, 0, 1, 0]])
    z = np.concatenate([z, z])
    z[0, 3] = np.nan
    x = project(z, 2).numpy()
    assert np.isnan(x[0]).all()
    assert_allclose(x[1], reference(z[1], 2), atol=1e-6)


@pytest.mark.parametrize("k", [1, 5])
def test_long_lists(rng, jit_compile, k):
    # A narrow spread has all items in the support, so that the largest alone do not
    # suffice.
    of_spreads = [rng.normal(size=(2, 1999)) * spread for spread in (1e-4, 1.0, 1e15)]
    for name in ("euclidean", "entropy"):
        project, reference = PROJECTIONS[name]
        compiled = tf.function(lambda z, p=project: p(z, k), jit_compile=jit_compile)
        for z in of_spreads:
            z = tf.constant(z, tf.float32)
            expected = [
                reference(row - row.max(), k) for row in z.numpy().astype(np.float64)
            ]
            assert_allclose(compiled(z), expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("seed", range(20))
def test_rankmax_against_bisection(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 14))
    k, width = (int(x) for x in rng.integers(1, n + 1, size=2))
    margin = rng.choice([0.3, 1.0, 2.5])
    z, weights = rng.normal(size=(2, n)) * rng.choice([0.3, 1.0, 5.0])
    ids = rng.permutation(n)[:width]
    found = ops.rankmax(z[None], ids[None], k, margin)[0]
    assert_allclose(found, projections.rankmax(z, ids, k, margin), atol=1e-9)

    def weighted(z):
        return ops.rankmax(z, ids[None], k, margin) @ weights[:, None]

    gradient = gradient_of(weighted, tf.constant(z[None]))[0]
    slopes = oracles.gradient(
        lambda z: (projections.rankmax(z, ids, k, margin) @ weights).sum(), z
    )
    assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-5)


def test_rankmax_at_its_edges(rng):
    """All items selected, padding, and ties at the k-th score."""
    z = np.array([[1.0, -3.0, 0.5]])
    assert_allclose(ops.rankmax(z, [[0, 1]], k=3), np.ones((1, 2, 3)))
    assert_array_equal(ops.rankmax(z, [[-1]]), np.zeros((1, 1, 3)))
    ties = np.array([[3.0, 1.0, 1.0, 1.0, -5.0]])
    # 0 is far above the others and selected whole; the three share what is left: 1 / 3
    # each.
    assert_allclose(ops.rankmax(ties, [[1]], k=2)[0], [[1, 1 / 3, 1 / 3, 1 / 3, 0]])


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_nan_among_the_scores_shows(place, k):
    scores = np.array([[4.0, 3.0, 2.0, 1.0, 0.0]])
    scores[0, place] = np.nan
    assert np.isnan(ops.rankmax(scores, [[3]], k)).all()
    for projection in (ops.euclidean_projection, ops.entropy_projection):
        assert np.isnan(projection(scores, k)).all()


TSALLIS = ops.Regularizer(
    lambda u: (tf.nn.relu(u + 4 / 3) / 2) ** 2, lambda x: (x**1.5 - x) / 0.75
)


def test_against_entmax(rng):
    torch = pytest.importorskip("torch", reason="the extra `oracles` is not installed")
    entmax = pytest.importorskip(
        "entmax", reason="the extra `oracles` is not installed"
    )
    z, weights = rng.normal(size=(2, 20, 100)) * 2
    pairs = ("euclidean", entmax.sparsemax, 1e-9), (TSALLIS, entmax.entmax15, 1e-6)
    for ours, theirs, atol in pairs:
        x = torch.tensor(z, requires_grad=True)
        expected = theirs(x, dim=-1)
        (gradient,) = torch.autograd.grad(expected, x, torch.tensor(weights))
        found = value_and_gradient(
            lambda z, r=ours: ops.simplex_projection(z, r), z, weights
        )
        assert_allclose(found[0], expected.detach().numpy(), atol=atol)
        assert_allclose(found[1], gradient.numpy(), atol=atol)
