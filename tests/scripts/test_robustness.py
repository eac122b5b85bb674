"""The robustness programs: what they find, and, marked slow, the short form of each."""

import csv
import subprocess
import sys

import pytest

from scripts.robustness import fuzz, strategies


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
def test_short_form(name, tmp_path):
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
