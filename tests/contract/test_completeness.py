"""Every public object has a row in the tables of the contract, and a name."""

from collections.abc import Callable

import pytest

import rank4class_tf as r4c
from rank4class_tf import _registry

from . import rows

# What finds an object by its name.
GET: dict[str, Callable] = {
    "loss": r4c.losses.get,
    "metric": r4c.metrics.get,
    "head": r4c.layers.get_head,
    "interaction": r4c.layers.get_interaction,
    "sorter": r4c.layers.get_sorter,
}

# What holds for its kind holds for none of these, so that they have tests of their own.
WITHOUT_A_ROW = {
    "ExpectedCalibrationError": "It is of probabilities, not of ranks.",
    "ForwardCorrectionLoss": "Its matrix names the classes, which cannot be exchanged.",
    "MacroAverage": "It is what its metric is.",
    "PropensityScoredNDCG": "Its propensities name the classes, which cannot be exchanged.",
    "PropensityScoredPrecisionAtK": "The same.",
    "SampledScores": "It scores some of the classes.",
    "WeightedSumLoss": "It is what its losses are.",
}


@pytest.mark.parametrize("kind", rows.MAKERS)
def test_every_object_has_a_row(kind):
    made = {type(make()) for make in rows.MAKERS[kind]}
    missing = {
        cls.__name__ for cls in rows.concrete(kind) if cls not in made
    } - WITHOUT_A_ROW.keys()
    assert not missing, "They need a row in tests/contract/tables.py or head_table.py."


@pytest.mark.parametrize("kind", GET)
def test_every_object_has_its_name(kind):
    for cls in rows.concrete(kind):
        if cls is not r4c.metrics.MacroAverage:  # It takes a metric.
            assert type(GET[kind](rows.name_of(cls, kind), **rows.needed(cls))) is cls


@pytest.mark.parametrize("kind", GET.keys() - {"sorter"})
def test_what_has_a_name_is_public(kind):
    assert set(_registry.known(kind, object).values()) <= set(rows.public_classes())
