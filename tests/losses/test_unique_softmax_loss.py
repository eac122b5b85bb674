"""Unique softmax against its definition."""

import functools

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

LOSS = losses.UniqueSoftmaxLoss(temperature=0.7, reduction="none")


def oracle(s, y):
    return lambda x: oracles.unique_softmax(x, y, temperature=0.7)


@every_size
def test_value_and_gradient_by_definition(n, grades, rng):
    assert_by_definition(LOSS, oracle, rng, n, grades)


def test_tied_scores():
    assert_by_definition_with_tied_scores(LOSS, oracle)


def test_one_positive_is_softmax(rng):
    scores, ids = rng.normal(size=(5, 8)), rng.integers(0, 8, 5)
    expected = losses.SoftmaxLoss().call(ids, scores)
    np.testing.assert_allclose(losses.UniqueSoftmaxLoss().call(ids, scores), expected, rtol=1e-12)


def test_labels_of_all_items_under_xla(rng):
    """So many that no tensor of all pairs fits into memory."""
    scores = rng.normal(size=(64, 10_000)).astype(np.float32)
    relevance = np.zeros_like(scores)
    relevance[:, 7] = 1
    ids = np.tile(np.arange(10_000, dtype=np.int32), (64, 1))
    compiled = tf.function(
        functools.partial(value_of, losses.UniqueSoftmaxLoss()), jit_compile=True
    )
    actual = compiled(scores, ids, relevance)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(np.full(64, 7), scores)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
