"""The matrix of strategies, in a reduced form: two devices equal one, an uneven last batch too."""

import dataclasses
import subprocess

import pytest
import tensorflow as tf

from scripts.robustness import strategy_matrix
from scripts.robustness.strategy_matrix import CONTROL, Cell


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        pytest.param(
            Cell("losses", "padded", data="one_left"),
            ["rankmax", "pairwise_hinge_lambda", "approx_ndcg"],
            marks=pytest.mark.keras2,
        ),
        (Cell("heads", "ids"), ["options", "encoded_strings"]),
    ],
    ids=["losses", "heads"],
)
def test_two_devices_equal_one(cell, names, two_devices):
    """Metrics have a test in `test_metrics.py`; `tests/models` trains one of each model."""
    one = tf.distribute.get_strategy()
    expected = strategy_matrix.train(cell.reference("mirrored"), names, one)
    results = strategy_matrix.train(cell, names, two_devices)
    assert list(results) == list(expected) == names
    for name in names:
        distance = strategy_matrix.distance(results[name], expected[name])
        assert distance <= strategy_matrix.TOLERANCES["float32"], name


@pytest.mark.slow
@pytest.mark.parametrize("kind", strategy_matrix.LABELS)
def test_all_objects_run(kind, two_devices):
    results = strategy_matrix.run_cell(strategy_matrix.row(kind)[0], two_devices)
    assert set(results) == {*strategy_matrix.objects(kind), CONTROL}
    assert not [name for name, result in results.items() if "error" in result]


def test_a_cell_that_dies_is_no_fault_of_keras(tmp_path, monkeypatch):
    def start(*args):
        return [subprocess.Popen(["false"])]

    monkeypatch.setattr(strategy_matrix, "start", start)
    cell = Cell("losses", "padded")
    strategy_matrix.run("3", "mirrored", tmp_path / "keras3" / "mirrored", 60, [cell])
    text, lines = strategy_matrix.compare(tmp_path, "3", "mirrored", cell)
    assert (text, lines) == ("0/1", ["`all objects`: the process died"])


def test_a_wrong_number_shows():
    theirs = {"before": [0.0, 1.0], "after": [0.5, 1.0], "values": {"loss": 2.0}}
    assert strategy_matrix.distance(theirs, theirs) == 0
    for wrong in ({"after": [0.5, 1.05]}, {"values": {"loss": 2.2}}):
        distance = strategy_matrix.distance({**theirs, **wrong}, theirs)
        assert distance == pytest.approx(0.1)
    assert strategy_matrix.distance({**theirs, "after": [0.5, float("nan")]}, theirs) > 1
    assert strategy_matrix.distance({"error": "no"}, theirs) == "no"


@pytest.mark.parametrize("strategy", strategy_matrix.STRATEGIES)
def test_every_cell_has_something_to_compare_with(strategy):
    """One device runs the references, of all objects or the same few."""
    there = set(strategy_matrix.cells("one"))
    for cell in strategy_matrix.cells(strategy):
        reference = cell.reference(strategy)
        assert {reference, dataclasses.replace(reference, few=False)} & there


def test_cells_without_results_are_blank_and_faults_are_named(tmp_path):
    folder = tmp_path / "keras3" / "mirrored"
    folder.mkdir(parents=True)
    cell = strategy_matrix.row("heads")[0]
    fault = '{"control": {"error": "ValueError: no"}, "concat": {"error": "ValueError: no"}}'
    (folder / f"{cell.name}.json").write_text(fault)
    text = strategy_matrix.table(tmp_path)
    assert "| 3 | mirrored | Keras |  |" in text
    assert "- ValueError: no (Keras 3, mirrored: heads, ids, graph, float32)" in text
