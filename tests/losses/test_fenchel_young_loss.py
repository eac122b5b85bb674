"""Fenchel-Young losses against their definition, entmax, and what is proved of them."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import ops
from rank4class_tf.losses import FenchelYoungLoss

from ..derivatives import gradient_of
from ..ops import projections
from .formula import value_of


@pytest.mark.parametrize("regularizer", ["euclidean", "entropy"])
@pytest.mark.parametrize("seed", range(10))
def test_fenchel_young_against_its_definition(regularizer, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    k, width = (int(x) for x in rng.integers(1, n + 1, size=2))
    alpha = rng.choice([0.3, 1.0, 2.0])
    z, ids = rng.normal(size=n), rng.permutation(n)[:width]

    def reference(z):
        return projections.fenchel_young(z, ids, k, regularizer, alpha)

    scores = tf.constant(z[None])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        padded = np.concatenate([ids, [-1]])[None].astype(np.int32)
        value = value_of(FenchelYoungLoss(regularizer, k, alpha), scores, padded)
    np.testing.assert_allclose(value, [reference(z)], atol=1e-9)
    gradient = tape.gradient(value, scores)[0]
    np.testing.assert_allclose(gradient, projections.slope(reference, z), atol=1e-6)


def test_fenchel_young_of_entropy_is_softmax(rng):
    z, ids = rng.normal(size=(5, 7)), rng.integers(0, 7, 5)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, z)
    value = value_of(FenchelYoungLoss("entropy"), z, ids[:, None])
    np.testing.assert_allclose(value, expected)


def test_adaptive_loss_is_the_fenchel_young_loss_of_rankmax(rng):
    for _ in range(20):
        z, y = rng.normal(size=8) * 2, int(rng.integers(8))
        # alpha from the projection: x_y = alpha * margin.
        alpha = projections.rankmax(z, y, 1)[y]
        expected = projections.fenchel_young(z, [y], 1, "euclidean", alpha)
        value = value_of(FenchelYoungLoss(alpha="adaptive"), z[None], [[y]])
        np.testing.assert_allclose(value, [expected], atol=1e-9)


def test_adaptive_loss_is_convex(rng):
    a, b = rng.normal(size=(2, 500, 5)) * 2
    t = rng.random((500, 1))
    ids = rng.integers(0, 5, (500, 1)).astype(np.int32)
    loss = FenchelYoungLoss(alpha="adaptive")
    middle, at_a, at_b = (value_of(loss, z, ids).numpy() for z in (t * a + (1 - t) * b, a, b))
    assert (middle <= t[:, 0] * at_a + (1 - t[:, 0]) * at_b + 1e-12).all()


def test_gradient_by_what_a_regularizer_reads(rng):
    z = rng.normal(size=(1, 4))

    def derivative(function):
        factor, step = tf.constant(0.8, tf.float64), 1e-6
        with tf.GradientTape() as tape:
            tape.watch(factor)
            value = function(factor)
        expected = (function(factor + step) - function(factor - step)) / (2 * step)
        np.testing.assert_allclose(tape.gradient(value, factor), expected, rtol=1e-6)

    def linear(factor):
        return ops.Regularizer(lambda u: factor * u, lambda x: x * x / (2 * factor))

    derivative(lambda f: value_of(FenchelYoungLoss(linear(f)), z, [[2]])[0])


class OwnConjugate(ops.Regularizer):
    def __init__(self):
        super().__init__(lambda u: u, lambda x: x * x / 2)

    def conjugate(self, scores, threshold):
        u = scores - threshold
        return (tf.nn.relu(u) ** 2 - tf.nn.relu(u - 1) ** 2) / 2


def test_a_conjugate_of_ones_own(rng):
    z = tf.constant(rng.normal(size=(3, 5)))
    ours, expected = (
        functools.partial(value_of, FenchelYoungLoss(r), class_ids=[[0], [1], [4]])
        for r in (OwnConjugate(), "euclidean")
    )
    np.testing.assert_allclose(ours(z), expected(z))
    np.testing.assert_allclose(gradient_of(ours, z), gradient_of(expected, z))


def test_a_regularizer_of_ones_own_against_entmax(rng):
    """Tsallis's entropy of order 3/2: h(x) = (x^1.5 - x) / 0.75."""
    torch = pytest.importorskip("torch", reason="the extra `oracles` is not installed")
    entmax = pytest.importorskip("entmax", reason="the extra `oracles` is not installed")
    tsallis = ops.Regularizer(
        lambda u: (tf.nn.relu(u + 4 / 3) / 2) ** 2, lambda x: (x**1.5 - x) / 0.75
    )
    z, ids = rng.normal(size=(20, 30)) * 2, rng.integers(0, 30, 20)
    theirs = torch.tensor(z, requires_grad=True)
    loss = entmax.Entmax15Loss(reduction="none")(theirs, torch.tensor(ids))
    (gradient,) = torch.autograd.grad(loss.sum(), theirs)
    scores = tf.constant(z)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = value_of(FenchelYoungLoss(tsallis), scores, ids)
    np.testing.assert_allclose(value, loss.detach().numpy(), atol=1e-7)
    np.testing.assert_allclose(tape.gradient(value, scores), gradient.numpy(), atol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_a_regularizer_of_ones_own_in_graphs(jit_compile):
    """It reads the mask within a loop."""
    half = ops.Regularizer(lambda u: 2 * u, lambda x: x**2 / 4)
    scores = tf.constant([[1.0, 0.9, -np.inf, 0.0]])
    project = tf.function(lambda s: ops.simplex_projection(s, half), jit_compile=jit_compile)
    np.testing.assert_allclose(project(scores), [[0.6, 0.4, 0, 0]], atol=1e-6)
    loss = FenchelYoungLoss(half, label_format="relevance")
    labels = tf.constant([[1.0, 0, -1, 0]])
    compiled = tf.function(loss, jit_compile=jit_compile)
    np.testing.assert_allclose(compiled(labels, scores), loss(labels, scores), rtol=1e-6)


def test_alpha_keeps_its_digits():
    scores = np.array([[0.3, -0.2, 1.1]])
    for loss in (
        FenchelYoungLoss(alpha=0.7),
        FenchelYoungLoss("entropy", alpha=0.7),
    ):
        exact = 0.7 * scores
        expected = type(loss)(loss.regularizer)([0], exact) / 0.7
        np.testing.assert_allclose(loss([0], scores), expected, rtol=1e-14)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="`regularizer` must be one of"):
        FenchelYoungLoss("l1")
    with pytest.raises(ValueError, match="`alpha` must be a number unless"):
        FenchelYoungLoss("entropy", alpha="adaptive")
    with pytest.raises(ValueError, match="`alpha` must be a number unless"):
        FenchelYoungLoss(k=2, alpha="adaptive")
    with pytest.raises(ValueError, match="`alpha` must be a finite number > 0"):
        FenchelYoungLoss(alpha=0)
    with pytest.raises(
        ValueError, match="`k` must be at most the number of items, 3. Received: k=4"
    ):
        FenchelYoungLoss(k=4)([0], [[0.0, 1.0, 2.0]])


@keras.utils.register_keras_serializable("tests")
class Steep(ops.Regularizer):
    """h(x) = x² / 2a."""

    def __init__(self, a):
        self.a = a
        super().__init__(lambda u: a * u, lambda x: x**2 / (2 * a))


def test_a_regularizer_of_a_user_is_saved_with_its_arguments():
    loss = FenchelYoungLoss(Steep(3.0))
    again = FenchelYoungLoss.from_config(loss.get_config())
    labels, scores = [0], [[1.0, 1.2, -0.5]]
    assert float(again(labels, scores)) == float(loss(labels, scores))
    assert again.regularizer.a == 3
