"""ListMLE against its definition."""

import functools
import itertools

import numpy as np
import tensorflow as tf

from rank4class_tf import losses

from . import oracles
from .by_definition import (
    assert_by_definition,
    assert_by_definition_with_tied_scores,
    every_size,
)
from .formula import value_of

LOSS = losses.ListMLELoss(temperature=0.7, reduction="none")


def oracle(s, y):
    return lambda x: oracles.list_mle(x, y, temperature=0.7)


@every_size
def test_value_and_gradient_by_definition(n, grades, rng):
    assert_by_definition(LOSS, oracle, rng, n, grades)


def test_tied_scores():
    assert_by_definition_with_tied_scores(LOSS, oracle)


def test_bounds_every_order_of_ties(rng):
    scores = rng.normal(size=6)
    labels = np.array([2.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    value = float(losses.ListMLELoss().call(labels[None], scores[None])[0])
    orders = [(0, *ties) for ties in itertools.permutations([1, 2, 3])]
    assert value > max(oracles.plackett_luce(scores, order) for order in orders)
    distinct = np.array([4.0, 3.0, 2.0, 1.0, 0.0, 0.0])
    value = float(losses.ListMLELoss().call(distinct[None], scores[None])[0])
    np.testing.assert_allclose(value, oracles.plackett_luce(scores, (0, 1, 2, 3)), rtol=1e-12)


def test_one_positive_is_softmax(rng):
    scores, ids = rng.normal(size=(5, 8)), rng.integers(0, 8, 5)
    expected = losses.SoftmaxLoss().call(ids, scores)
    np.testing.assert_allclose(losses.ListMLELoss().call(ids, scores), expected, rtol=1e-12)


def test_labels_of_all_items_under_xla(rng):
    """So many that no tensor of all pairs fits into memory."""
    scores = rng.normal(size=(64, 10_000)).astype(np.float32)
    relevance = np.zeros_like(scores)
    relevance[:, 7] = 1
    ids = np.tile(np.arange(10_000, dtype=np.int32), (64, 1))
    loss = functools.partial(value_of, losses.ListMLELoss())
    compiled = tf.function(loss, jit_compile=True)
    actual = compiled(scores, ids, relevance)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(np.full(64, 7), scores)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
