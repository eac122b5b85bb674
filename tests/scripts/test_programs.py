"""Benchmarks and robustness programs: what they report; marked slow, the short form of each."""

import csv
import subprocess
import sys

import pytest

from scripts.benchmarks import harness
from scripts.robustness import fuzz, strategies


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('first'); print('{\"graph\": 1.5}')", {"graph": 1.5}),
        ("import no_such_module", {"error": "not installed"}),
        ("raise MemoryError", {"error": "out of memory"}),
        ("import os; os.kill(os.getpid(), 9)", {"error": "out of memory"}),
        ("import os; os.kill(os.getpid(), 15)", {"error": "ends by signal 15"}),
        ("raise ValueError('k')", {"error": "fails: ValueError: k"}),
        ("import time; time.sleep(60)", {"error": "over 0.5 s"}),
    ],
)
def test_in_process_gives_figures_or_the_reason(code, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Where a process that starts finds the module.
    (tmp_path / "measured.py").write_text(code)
    limit = 0.5 if "sleep" in code else None
    assert harness.in_process("measured", {}, time_limit=limit) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["losses", "heads", "metrics", "sorters", "retrieval", "many_classes", "fit"]
)
def test_short_form_of_a_benchmark(name, tmp_path):
    path = tmp_path / "figures.csv"
    command = [sys.executable, "-m", f"scripts.benchmarks.{name}", "--quick", "--csv", path]
    subprocess.run(command, check=True, capture_output=True)
    lines = path.read_text().splitlines()
    heads = [i + 1 for i, line in enumerate(lines) if line.startswith("#") and i > 1]
    rows = [i for i, line in enumerate(lines) if line[0] != "#" and i not in heads]
    assert len(rows) >= len(heads) >= 1
    for row in csv.reader(lines[i] for i in rows):
        cells = [cell.split()[0] for cell in row[1:] if cell[:1].isdigit()]
        assert cells and not any(bad in cell for cell in row for bad in ("fails", "memory", "over"))


@pytest.mark.parametrize(
    ("read", "right", "message"),
    [
        (lambda: 1, lambda found: found == 2, "another result: 1"),
        (lambda: 1, None, "another result: 1"),
        (lambda: int("x"), None, "an error without a name"),
        (lambda: int("x"), lambda found: True, "what is right is refused"),
    ],
)
def test_defects_are_seen(read, right, message):
    with pytest.raises(fuzz.Defect, match=message):
        fuzz.outcome(read, right, ["file.txt"])
    with pytest.raises(ZeroDivisionError):
        fuzz.outcome(lambda: 1 // 0, None, [""])


def test_oracle_of_metrics_is_the_mean_over_all_orders():
    """Two positives and two others share a score below one other: ranks 2, 3 or 4."""
    found = fuzz.reciprocal_rank([5.0, 1, 1, 1, 1], {1: 1.0, 2: 1.0}, set())
    assert found == pytest.approx(1 / 2 * 1 / 2 + 1 / 2 * 2 / 3 / 3 + 1 / 2 * 1 / 3 / 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fuzz", "strategies", "faults"])
def test_short_form_of_robustness(name, tmp_path):
    command = [sys.executable, "-m", f"scripts.robustness.{name}", "--quick"]
    command += ["--csv", tmp_path / "table.csv"]
    command += ["--folder", tmp_path / "cells"] * (name == "strategies")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    head, *rows = csv.reader((tmp_path / "table.csv").read_text().splitlines())
    assert rows and all(len(row) == len(head) for row in rows)
    if name == "strategies":
        results = {row[2]: row[4] for row in rows if row[1] == "3"}
        number = len(strategies.objects("shards")) + 1
        assert results["one"] == "trains" and results["mirrored"].startswith(f"{number}/{number} ")
    if name == "faults":
        ((_, kills, _, same, other, error, *damages),) = rows
        assert (kills, other, error) == ("2", "0", "0") and int(same) > 0
        assert damages == ["same 1"] * 3
    assert "DEFECT" not in done.stdout
