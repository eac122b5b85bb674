"""Every loss over all classes, by blocks, has the values and gradients of the plain form."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf._lists import blocked, classes
from rank4class_tf._lists.classes import ClassProducts

from .tables import LOSSES

BATCH, WIDTH, CLASSES = 6, 4, 23  # No multiple of a block.


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(classes, "BLOCK", 5)
    monkeypatch.setattr(blocked, "_CHUNK", 4 * CLASSES)


def unit_scores(encodings, rows, biases):
    """Scores that depend on rows in a way of their own, as those of rows of length 1 do."""
    rows = tf.math.l2_normalize(rows, axis=-1)
    if rows.shape.rank == 2:
        return tf.matmul(encodings, rows, transpose_b=True) + biases
    return tf.einsum("bmd,bd->bm", rows, encodings) + biases


def inputs(num_positives, seed=0):
    generator = np.random.default_rng(seed)

    def draw(*shape):
        return tf.constant(generator.normal(size=shape), tf.float32)

    ids = np.stack([generator.permutation(CLASSES)[:num_positives] for _ in range(BATCH)])
    ids[1, 1:] = -1
    ids[2] = -1  # An example without a class.
    tables = tf.Variable(draw(CLASSES, WIDTH)), tf.Variable(draw(CLASSES) / 4)
    return tf.constant(ids, tf.int32), 2 * draw(BATCH, WIDTH), tables


def value_and_gradients(loss, ids, encodings, tables, dense):
    upstream = tf.linspace(0.5, 2.0, BATCH)
    with tf.GradientTape() as tape:
        tape.watch(encodings)
        products = ClassProducts(encodings, tables, unit_scores)
        value = loss(ids, unit_scores(encodings, *tables) if dense else products)
        total = tf.reduce_sum(value * upstream)
    gradients = tape.gradient(total, [encodings, *tables], unconnected_gradients="zero")
    return value, *map(tf.convert_to_tensor, gradients)


def assert_equal(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        scale = 1 + np.abs(e).max()
        np.testing.assert_allclose(a / scale, e / scale, atol=1e-5, rtol=0)


@pytest.mark.parametrize("num_positives", [1, 4])
@pytest.mark.parametrize("case", LOSSES, ids=lambda case: case.name)
def test_the_values_and_gradients_are_those_of_the_plain_form(case, num_positives):
    loss = case.make(reduction="none", label_format="ids")
    arguments = inputs(num_positives)
    if case.random:  # Each chunk draws numbers of its own: the examples of one draw these.
        pytest.skip("see test_random_losses")
    expected = value_and_gradients(loss, *arguments, dense=True)
    assert_equal(value_and_gradients(loss, *arguments, dense=False), expected)


# A loss whose gradient is 0 for most classes takes only the others, or all if these are many.
SPARSE = [case for case in LOSSES if case.name in ("rankmax", "rankmax_2", "sparsemax", "warp")]


@pytest.mark.parametrize("num_positives", [1, 4])
@pytest.mark.parametrize("per_used", [0, 1000], ids=["used", "all"])
@pytest.mark.parametrize("case", SPARSE, ids=lambda case: case.name)
def test_the_classes_that_are_needed_give_the_gradient_of_all(
    case, per_used, num_positives, monkeypatch
):
    monkeypatch.setattr(classes, "_PER_USED", per_used)
    loss = case.make(reduction="none", label_format="ids")
    ids, encodings, tables = inputs(num_positives)
    expected = value_and_gradients(loss, ids, encodings, tables, dense=True)

    @tf.function
    def in_graph(ids, encodings):
        return value_and_gradients(loss, ids, encodings, tables, dense=False)

    assert_equal(in_graph(ids, encodings), expected)
