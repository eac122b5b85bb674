"""Rankmax, Sparsemax and Fenchel-Young losses: entmax, and what the papers say of them."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import ops
from rank4class_tf.losses import FenchelYoungLoss, RankmaxLoss, SparsemaxLoss

from .. import derivatives
from ..derivatives import gradient_of
from . import oracles
from .formula import value_of


def value_and_gradient(loss, scores, ids):
    ids = np.asarray(ids, np.int32)
    found = derivatives.value_and_gradient(lambda x: value_of(loss, x, ids), scores)
    return [x.numpy() for x in found]


def one_hot(y, n):
    return np.eye(n)[y]


@pytest.mark.parametrize("z", [[1.0, -3.0, 0.5], [1.0, -np.inf, 0.5, -np.inf]])
def test_lists_of_which_all_items_are_selected_have_no_loss(z):
    value, gradient = value_and_gradient(RankmaxLoss(3), np.array([z]), [[0, 2]])
    np.testing.assert_array_equal(value, [0.0])
    np.testing.assert_array_equal(gradient, np.zeros((1, len(z))))


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("level", [0.0, 1000.0, 1e30])
def test_all_equal_scores(k, level):
    scores = np.full((1, 8), level, np.float32)
    value, gradient = value_and_gradient(RankmaxLoss(k), scores, [[3]])
    np.testing.assert_allclose(value, [np.log(8 / k)], rtol=1e-6)
    # S = 8 / k times the margin each; y stands for the level: (1 - 8) / 8.
    np.testing.assert_allclose(gradient[0], np.where(np.arange(8) == 3, -7, 1) / 8, rtol=1e-6)


def test_ties_at_the_kth_score():
    z = np.array([[3.0, 1.0, 1.0, 1.0, -5.0]])
    for y in range(4):
        value, gradient = value_and_gradient(RankmaxLoss(2), z, [[y]])
        np.testing.assert_allclose(value, [oracles.rankmax(z[0], one_hot(y, 5), 2)], atol=1e-12)
        np.testing.assert_allclose(gradient.sum(), 0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3])
def test_far_apart_scores(k):
    # As far as float64 can tell apart with the margin, which the reference needs.
    z = np.array([[1e12, 0.5, 0.2, -1e12, 1e12, 1e12, -0.1]], np.float32)
    for y in range(7):
        value, gradient = value_and_gradient(RankmaxLoss(k), z, [[y]])
        expected = oracles.rankmax(z[0], one_hot(y, 7), k)
        np.testing.assert_allclose(value, [expected], rtol=1e-5, atol=1e-6)
        assert np.isfinite(gradient).all()


def test_relevance_of_padding_counts_for_nothing(rng):
    z, ids, weights = rng.normal(size=(1, 9)), [[4, -1, 7]], [[2.0, 9.0, 3.0]]
    y = 2 * one_hot(4, 9) + 3 * one_hot(7, 9)
    for reduction in ("sum", "mean"):
        found = value_of(RankmaxLoss(2, positive_reduction=reduction), z, ids, weights)
        expected = oracles.rankmax(z[0], y, 2, positive_reduction=reduction)
        np.testing.assert_allclose(found, [expected])
        for k in (1, 2):
            loss = RankmaxLoss(k, positive_reduction=reduction)
            value, gradient = value_and_gradient(loss, z, [[-1, -1]])
            assert not value.any() and not gradient.any()
    assert value_of(RankmaxLoss(), z, np.zeros((1, 0), np.int32)).numpy() == [0.0]


@pytest.mark.parametrize("regularizer", ["euclidean", "entropy"])
def test_alpha_keeps_its_digits(regularizer):
    scores = np.array([[0.3, -0.2, 1.1]])
    expected = FenchelYoungLoss(regularizer)([0], 0.7 * scores) / 0.7
    found = FenchelYoungLoss(regularizer, alpha=0.7)([0], scores)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


# Tsallis's entropy of order 3/2: h(x) = (x^1.5 - x) / 0.75.
TSALLIS = ops.Regularizer(lambda u: (tf.nn.relu(u + 4 / 3) / 2) ** 2, lambda x: (x**1.5 - x) / 0.75)


@pytest.mark.parametrize(
    ("ours", "theirs", "tolerance"),
    [
        (SparsemaxLoss(), "SparsemaxLoss", 1e-9),
        (FenchelYoungLoss(TSALLIS), "Entmax15Loss", 1e-6),
    ],
)
def test_against_entmax(ours, theirs, tolerance, rng):
    torch = pytest.importorskip("torch", reason="the extra `oracles` is not installed")
    entmax = pytest.importorskip("entmax", reason="the extra `oracles` is not installed")
    z, ids = rng.normal(size=(20, 100)) * 2, rng.integers(0, 100, 20)
    x = torch.tensor(z, requires_grad=True)
    loss = getattr(entmax, theirs)(reduction="none")(x, torch.tensor(ids))
    (expected,) = torch.autograd.grad(loss.sum(), x)
    value, gradient = value_and_gradient(ours, z, ids)
    np.testing.assert_allclose(value, loss.detach().numpy(), atol=tolerance)
    np.testing.assert_allclose(gradient, expected.numpy(), atol=tolerance)


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


def test_gradient_by_what_a_regularizer_reads(rng):
    z, factor = rng.normal(size=(1, 4)), tf.constant(0.8, tf.float64)

    def value(factor):
        return value_of(FenchelYoungLoss(Steep(factor)), z, [[2]])[0]

    expected = (value(factor + 1e-6) - value(factor - 1e-6)) / 2e-6
    np.testing.assert_allclose(gradient_of(value, factor), expected, rtol=1e-6)


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
