"""The pairwise logistic loss against its definition."""

import numpy as np
import tensorflow as tf

from rank4class_tf import losses

from ..derivatives import gradient_of
from . import oracles
from .by_definition import (
    assert_by_definition,
    assert_by_definition_with_tied_scores,
    every_size,
)

LOSS = losses.PairwiseLogisticLoss(temperature=0.7, reduction="none")


def oracle(s, y):
    return lambda x: oracles.pairwise_logistic(x, y, temperature=0.7)


@every_size
def test_value_and_gradient_by_definition(n, grades, rng):
    assert_by_definition(LOSS, oracle, rng, n, grades)


def test_tied_scores():
    assert_by_definition_with_tied_scores(LOSS, oracle)


def test_second_derivative():
    scores = tf.constant([[0.3, -0.4, 0.0]], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(scores)
        gradient = gradient_of(lambda s: losses.PairwiseLogisticLoss().call([0], s), scores)
        total = gradient[0, 0]
    slope = outer.gradient(total, scores)[0, 0]
    differences = np.array([0.3 + 0.4, 0.3])
    sigmoid = 1 / (1 + np.exp(-differences))
    np.testing.assert_allclose(slope, (sigmoid * (1 - sigmoid)).sum(), rtol=1e-12)
