"""The squared error of all scores against its definition."""

from rank4class_tf import losses

from . import oracles
from .by_definition import (
    assert_by_definition,
    assert_by_definition_with_tied_scores,
    every_size,
)

LOSS = losses.MeanSquaredLoss(positive_weight=3.0, positive_target=2.0, reduction="none")


def oracle(s, y):
    return lambda x: oracles.mean_squared(x, y, positive_weight=3.0, positive_target=2.0)


@every_size
def test_value_and_gradient_by_definition(n, grades, rng):
    assert_by_definition(LOSS, oracle, rng, n, grades)


def test_tied_scores():
    assert_by_definition_with_tied_scores(LOSS, oracle)
