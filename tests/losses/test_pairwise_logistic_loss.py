"""The pairwise logistic loss against its definition."""

from rank4class_tf import losses

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
