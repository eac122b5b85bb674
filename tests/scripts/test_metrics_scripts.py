"""The scripts about metrics run."""

import csv
import importlib.util
import pathlib
import subprocess
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


def run(script, *arguments):
    command = [sys.executable, SCRIPTS / script, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_compare_models(tmp_path):
    lines = run("compare_models.py", "--out", tmp_path, "--epochs", 2).splitlines()
    rows = {cells[1].strip(): cells[2:] for cells in (line.split("|") for line in lines[:5])}
    for name in ("top_k_accuracy_at_1", "top_k_accuracy_at_5"):
        first, second, difference, p = rows[name][:4]
        assert first == second and float(difference) == 0 and float(p) == 1
    assert float(rows["ndcg_at_5"][2]) > 0
    with open(tmp_path / "first.csv", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) > 100
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_benchmark_metrics():
    table = run("benchmark_metrics.py", "--shapes", "8x16", "--seconds", 0)
    both = importlib.util.find_spec("tf_keras") is not None
    assert table.count("| 8x16 | best | NDCG(5) |") == 1 + both
    assert "| 8x16 | random | scikit-learn ndcg_score(5) |" in table
