"""Every public object has a row in the tables of the contract, and a name."""

import pytest
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _registry

from . import rows

# The classes of each kind, and what finds one by its name.
KINDS = {
    "loss": ((r4c.losses.RankingLoss, r4c.losses.SorterLoss), r4c.losses.get),
    "metric": (keras.metrics.Metric, r4c.metrics.get),
    "head": (r4c.layers.Head, r4c.layers.get_head),
    "interaction": (r4c.layers.Interaction, r4c.layers.get_interaction),
    "sorter": (r4c.layers.Sorter, r4c.layers.get_sorter),
    "optimizer": (keras.optimizers.Optimizer, None),
}

# What holds for its kind holds for none of these, so that they have tests of their own.
WITHOUT_A_ROW = {
    "ExpectedCalibrationError": "It is of probabilities, not of ranks.",
    "MacroAverage": "It is what its metric is.",
    "SampledScores": "It scores some of the classes.",
}


def classes(kind):
    """The public classes of a kind but for bases: what others derive from and has no name."""
    public = rows.public_classes(KINDS[kind][0])
    named = _registry._NAMED.get(kind, {})
    return [
        cls
        for cls in public
        if rows.name_of(cls, kind) in named
        or not any(issubclass(other, cls) and other is not cls for other in public)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_has_a_row(kind):
    made = {type(make()) for make in rows.MAKERS[kind]}
    missing = {cls.__name__ for cls in classes(kind) if cls not in made} - WITHOUT_A_ROW.keys()
    assert not missing, "They need a row in tests/contract/tables.py or head_table.py."


@pytest.mark.parametrize("kind", KINDS.keys() - {"optimizer"})
def test_every_object_has_its_name(kind):
    get = KINDS[kind][1]
    for cls in classes(kind):
        if cls is not r4c.metrics.MacroAverage:  # It takes a metric.
            assert type(get(rows.name_of(cls, kind), **rows.needed(cls))) is cls


@pytest.mark.parametrize("kind", KINDS.keys() - {"optimizer", "sorter"})
def test_what_has_a_name_is_public(kind):
    assert set(_registry.known(kind, object).values()) <= set(rows.public_classes())
