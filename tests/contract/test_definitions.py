"""Losses against the definition in their row, value and gradient."""

import pytest

from ..losses.by_definition import (
    assert_by_definition,
    assert_by_definition_with_tied_scores,
    every_size,
)
from .tables import LOSSES

pytestmark = pytest.mark.parametrize(
    "case", [case for case in LOSSES if case.definition], ids=lambda case: case.name
)


def oracle_of(case):
    return lambda scores, labels: lambda x: case.definition(x, labels)


@every_size
def test_equals_its_definition(case, n, grades, rng):
    assert_by_definition(case.make(reduction="none"), oracle_of(case), rng, n, grades)


def test_tied_scores(case):
    assert_by_definition_with_tied_scores(case.make(reduction="none"), oracle_of(case))
