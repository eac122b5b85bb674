"""The matrix of strategies, in a reduced form: two devices equal one, an uneven last batch too."""

import pytest
import tensorflow as tf

from scripts.robustness import strategies
from scripts.robustness.strategies import CONTROL, Cell

pytestmark = pytest.mark.slow

LOSSES = ["rankmax", "pairwise_hinge_lambda", "approx_ndcg"]


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        pytest.param(Cell("losses", "padded", data="one_left"), LOSSES, marks=pytest.mark.keras2),
        (Cell("heads", "ids"), ["options", "encoded_strings"]),
    ],
    ids=["losses", "heads"],
)
def test_two_devices_equal_one(cell, names, two_devices):
    """Metrics have a test in `test_metrics.py`; `tests/models` trains one of each model."""
    expected = strategies.train(cell.reference("mirrored"), names, tf.distribute.get_strategy())
    results = strategies.train(cell, names, two_devices)
    assert list(results) == list(expected) == names
    for name in names:
        distance = strategies.distance(results[name], expected[name])
        assert distance <= strategies.TOLERANCES["float32"], name


@pytest.mark.parametrize("kind", strategies.LABELS)
def test_all_objects_run(kind, two_devices):
    results = strategies.run_cell(strategies.row(kind)[0], two_devices)
    assert set(results) == {*strategies.objects(kind), CONTROL}
    assert not [name for name, result in results.items() if "error" in result]
