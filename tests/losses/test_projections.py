"""Rankmax and Fenchel-Young losses: all items selected, and regularizers of one's own."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import ops
from rank4class_tf.losses import FenchelYoungLoss, RankmaxLoss

from .. import derivatives
from ..derivatives import gradient_of
from .formula import value_of


def value_and_gradient(loss, scores, ids):
    ids = np.asarray(ids, np.int32)
    found = derivatives.value_and_gradient(lambda x: value_of(loss, x, ids), scores)
    return [x.numpy() for x in found]


@pytest.mark.parametrize("z", [[1.0, -3.0, 0.5], [1.0, -np.inf, 0.5, -np.inf]])
def test_lists_of_which_all_items_are_selected_have_no_loss(z):
    value, gradient = value_and_gradient(RankmaxLoss(3), np.array([z]), [[0, 2]])
    np.testing.assert_array_equal(value, [0.0])
    np.testing.assert_array_equal(gradient, np.zeros((1, len(z))))


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
