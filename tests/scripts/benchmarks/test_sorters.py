"""The benchmark of the sorters runs, and its tables follow from what was measured."""

import json
import subprocess
import sys

import pytest

from scripts.benchmarks import sorters as script

COMMAND = [sys.executable, "-m", "scripts.benchmarks.sorters"]


def test_times_are_ratios_to_the_sort():
    graph = {"forward": 0.003, "gradient": 0.006, "sort": 0.002}
    results = {"laplace": {"graph": graph}, "diffsort": {"error": "not installed"}}
    assert str(script.time_table((32, 100), results)).splitlines()[4:] == [
        "| laplace | 1.5 (3 ms) | 3.0 (6 ms) |  |  |",
        "| diffsort | not installed | not installed | not installed | not installed |",
    ]


def test_accuracy_table():
    figures = {
        "l1_10": 0.02,
        "vanishing_slopes": 0.01,
        "wrong_slopes": 0.0,
        "median_slope": -0.45,
    }
    results = {"laplace": figures, "sigmoid": {"error": "over 9 s"}}
    assert str(script.accuracy_table(10, results)).splitlines()[4:] == [
        "| laplace | 0.0200 | 1.0% | 0.0% | -0.45 |",
        "| sigmoid | over 9 s |  |  |  |",
    ]


@pytest.mark.slow
def test_runs(tmp_path):
    out = tmp_path / "figures.json"
    command = [*COMMAND, "--sorters", "laplace", "neural_sort", "--lengths"]
    command += ["--shapes", "2x8", "--seconds", "0", "--json", out]
    subprocess.run(command, check=True, capture_output=True)
    (table,) = json.loads(out.read_text())["tables"]
    assert table["title"] == "2 × 8"
    for name, row in zip(("laplace", "neural_sort"), table["rows"], strict=True):
        assert row[0] == name and all(float(cell.split()[0]) > 0 for cell in row[1:])
