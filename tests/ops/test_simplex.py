"""Projections on the (n, k)-simplex against references by bisection and entmax."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import ops

from ..derivatives import gradient_of
from . import projections

LINEAR = ops.Regularizer(lambda u: u, lambda x: x * x / 2)
EXPONENTIAL = ops.Regularizer(lambda u: tf.exp(u - 1), lambda x: tf.math.xlogy(x, x))
PROJECTIONS = {
    "euclidean": (ops.euclidean_projection, projections.euclidean),
    "entropy": (ops.entropy_projection, projections.entropy),
    "separable euclidean": (
        lambda z, k, alpha=1.0: ops.simplex_projection(z, LINEAR, k, alpha),
        projections.euclidean,
    ),
    "separable entropy": (
        lambda z, k, alpha=1.0: ops.simplex_projection(z, EXPONENTIAL, k, alpha),
        projections.entropy,
    ),
}
every_projection = pytest.mark.parametrize("name", PROJECTIONS)


def product(project, z, weights):
    """The projection of one list, and weights times its Jacobian."""
    scores = tf.constant(z[None])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        x = project(scores)
    return x.numpy()[0], tape.gradient(x, scores, weights[None]).numpy()[0]


@every_projection
@pytest.mark.parametrize("seed", range(8))
def test_value_and_jacobian_against_bisection(name, seed):
    project, reference = PROJECTIONS[name]
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    k, alpha = int(rng.integers(1, n)), rng.choice([0.3, 1.0, 2.0])
    z, weights = rng.normal(size=(2, n)) * 1.5
    x, gradient = product(lambda z: project(z, k, alpha), z, weights)
    np.testing.assert_allclose(x, reference(z, k, alpha), atol=1e-9)
    expected = projections.slope(lambda z: weights @ reference(z, k, alpha), z)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    np.testing.assert_allclose(gradient.sum(), 0, atol=1e-9)


@every_projection
def test_alpha_per_example_and_its_gradient(name, rng):
    project, reference = PROJECTIONS[name]
    z, alpha = rng.normal(size=(2, 6)), np.array([0.5, 2.0])
    expected = [reference(row, 2, a) for row, a in zip(z, alpha, strict=True)]
    np.testing.assert_allclose(project(z, 2, alpha), expected, atol=1e-9)
    weights = rng.normal(size=6)
    variable = tf.constant(0.8, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = tf.reduce_sum(project(z[:1], 2, variable) * weights)
    numeric = projections.slope(lambda a: weights @ reference(z[0], 2, a[0]), [0.8])
    np.testing.assert_allclose(tape.gradient(value, variable), numeric[0], atol=1e-6)


@every_projection
@pytest.mark.parametrize("where", ["cond", "map", "forward mode"])
def test_gradients_wherever_it_is_called(name, where, rng):
    z, weights = tf.constant(rng.normal(size=(3, 5))), rng.normal(size=(1, 5))
    project = PROJECTIONS[name][0]

    def value(z):
        return tf.reduce_sum(weights * project(z, 2), axis=1)

    expected = gradient_of(value, z)
    if where == "forward mode":
        with tf.autodiff.ForwardAccumulator(z, tf.ones_like(z)) as forward:
            values = value(z)
        actual, expected = forward.jvp(values), tf.reduce_sum(expected, axis=1)
    elif where == "cond":
        chosen = tf.function(lambda z: tf.cond(z[0, 0] < 9, lambda: value(z), lambda: z[:, 0]))
        actual = gradient_of(chosen, z)
    else:
        actual = gradient_of(tf.function(lambda z: tf.map_fn(lambda x: value(x[None]), z)), z)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_gradients_by_what_a_regularizer_reads(rng):
    z, weights = rng.normal(size=(2, 1, 4))

    def derivative(function):
        factor, step = tf.constant(0.8, tf.float64), 1e-6
        with tf.GradientTape() as tape:
            tape.watch(factor)
            value = function(factor)
        expected = (function(factor + step) - function(factor - step)) / (2 * step)
        np.testing.assert_allclose(tape.gradient(value, factor), expected, rtol=1e-6)

    def linear(factor):
        return ops.Regularizer(lambda u: factor * u, lambda x: x * x / (2 * factor))

    derivative(lambda f: tf.reduce_sum(weights * ops.simplex_projection(z, linear(f))))


def test_the_conjugate_of_an_item_far_below_is_0():
    linear = ops.Regularizer(lambda u: u, lambda x: x * x / 2)
    scores = tf.constant([-np.inf, -1.0, 0.5, 2.0])
    np.testing.assert_array_equal(linear.conjugate(scores, tf.constant(0.0)), [0, 0, 0.125, 1.5])


@pytest.mark.parametrize("n", [50, 10_000])
def test_many_shares_sum_to_k_in_float32(n, rng):
    z = rng.normal(size=(8, n)) * 10 ** rng.uniform(-5, 0, size=(8, 1)) / np.sqrt(n)
    for project, _ in PROJECTIONS.values():
        x = project(z.astype(np.float32), 1).numpy()
        np.testing.assert_allclose(x.astype(np.float64).sum(axis=1), 1, atol=5e-6)


@every_projection
def test_selecting_all_and_large_alpha(name):
    project, _ = PROJECTIONS[name]
    z = np.array([[0.3, -1.0, 2.0, 0.4]])
    np.testing.assert_allclose(project(z, 4), np.ones((1, 4)), atol=1e-9)
    np.testing.assert_allclose(project(z, 2, 1e4), [[0, 0, 1, 1]], atol=1e-9)
    equal = project(np.full((1, 8), 3.0), 2)
    np.testing.assert_allclose(equal, np.full((1, 8), 2 / 8), atol=1e-9)
    ties = project(np.array([[9.0, 1.0, 1.0, -9.0]]), 2, 50.0)
    np.testing.assert_allclose(ties, [[1, 0.5, 0.5, 0]], atol=1e-9)
    with pytest.raises(ValueError, match="`k` must be at most the number of items, 4"):
        project(z, 5)


@pytest.mark.parametrize("name", ["euclidean", "entropy"])
def test_softmax_and_masks_and_nan(name, rng):
    project, reference = PROJECTIONS[name]
    z = rng.normal(size=(1, 6)).astype(np.float32)
    if name == "entropy":
        np.testing.assert_allclose(project(z, 1), tf.nn.softmax(z), rtol=1e-5)
    masked = np.insert(z, 2, -np.inf, axis=1)
    expected = np.insert(project(z, 3), 2, 0.0, axis=1)
    np.testing.assert_allclose(project(masked, 3), expected, atol=1e-6)
    few = np.array([[1.0, -np.inf, 0.0, -np.inf]], np.float32)
    np.testing.assert_array_equal(project(few, 3), [[1, 0, 1, 0]])
    z = np.concatenate([z, z])
    z[0, 3] = np.nan
    x = project(z, 2).numpy()
    assert np.isnan(x[0]).all()
    np.testing.assert_allclose(x[1], reference(z[1], 2), atol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("k", [1, 5])
def test_long_lists(rng, jit_compile, k):
    # A narrow spread has all items in the support, so that the largest alone do not suffice.
    of_spreads = [rng.normal(size=(2, 1999)) * spread for spread in (1e-4, 1.0, 1e15)]
    for name in ("euclidean", "entropy"):
        project, reference = PROJECTIONS[name]
        compiled = tf.function(lambda z, p=project: p(z, k), jit_compile=jit_compile)
        for z in of_spreads:
            z = tf.constant(z, tf.float32)
            expected = [reference(row - row.max(), k) for row in z.numpy().astype(np.float64)]
            np.testing.assert_allclose(compiled(z), expected, rtol=1e-4, atol=2e-6)


def test_against_entmax(rng):
    torch = pytest.importorskip("torch", reason="the extra `oracles` is not installed")
    entmax = pytest.importorskip("entmax", reason="the extra `oracles` is not installed")
    z = rng.normal(size=(20, 300)) * 2
    theirs = torch.tensor(z, requires_grad=True)
    expected = entmax.sparsemax(theirs, dim=-1)
    np.testing.assert_allclose(ops.euclidean_projection(z), expected.detach().numpy(), atol=1e-9)
    weights = rng.normal(size=z.shape)
    (gradient,) = torch.autograd.grad(expected, theirs, torch.tensor(weights))
    scores = tf.constant(z)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        x = ops.euclidean_projection(scores)
    np.testing.assert_allclose(tape.gradient(x, scores, weights), gradient.numpy(), atol=1e-9)


def test_a_regularizer_of_ones_own_against_entmax(rng):
    """Tsallis's entropy of order 3/2: h(x) = (x^1.5 - x) / 0.75."""
    torch = pytest.importorskip("torch", reason="the extra `oracles` is not installed")
    entmax = pytest.importorskip("entmax", reason="the extra `oracles` is not installed")
    tsallis = ops.Regularizer(
        lambda u: (tf.nn.relu(u + 4 / 3) / 2) ** 2, lambda x: (x**1.5 - x) / 0.75
    )
    z = rng.normal(size=(20, 30)) * 2
    expected = entmax.entmax15(torch.tensor(z), dim=-1).numpy()
    np.testing.assert_allclose(ops.simplex_projection(z, tsallis), expected, atol=1e-7)


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    st.sampled_from(["euclidean", "entropy"]),
    st.lists(st.floats(-50, 50), min_size=2, max_size=9),
    st.integers(1, 9),
    st.floats(0.1, 10),
    st.integers(0, 2**31),
)
def test_properties(name, z, k, alpha, seed):
    project, _ = PROJECTIONS[name]
    z, k = np.array(z), min(k, len(z))
    x = project(z[None], k, alpha).numpy()[0]
    assert x.sum() == pytest.approx(k)
    assert (x >= 0).all() and (x <= 1).all()
    assert (np.diff(x[np.argsort(z)]) >= -1e-12).all()
    np.testing.assert_allclose(project(z[None] + 5, k, alpha)[0], x, atol=1e-9)
    other = z + np.random.default_rng(seed).normal(size=len(z))
    moved = np.linalg.norm(project(other[None], k, alpha).numpy()[0] - x)
    assert moved <= alpha * np.linalg.norm(other - z) + 1e-9
