"""The benchmark of the losses runs, and its table follows from what was measured."""

import subprocess
import sys

import pytest

from scripts.benchmarks import losses as script

COMMAND = [sys.executable, "-m", "scripts.benchmarks.losses"]


def test_table_shows_ratios():
    own = {"graph": 3.0, "graph_softmax": 2.0, "xla": 1.0, "xla_softmax": 1.0, "graph_memory": 7.4}
    peer = {"graph": 90.0, "graph_softmax": 3.0, "xla": "out of memory"}
    peer["graph_memory"] = "over 9 s"
    results = {"approx_ndcg": own, "tfr_approx_ndcg": peer, "tfr_softmax": {"error": "over 9 s"}}
    rows = str(script.table(2, 8, results)).splitlines()[4:]
    assert rows == [
        "| approx_ndcg | 1.50 | 1.00 | 7 |  |  |  |",
        "| tfr_approx_ndcg | 30.00 | out of memory | over 9 s |  | 20.0 |  |",
        "| tfr_softmax | over 9 s | over 9 s |  |  |  |  |",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["ids", "graded"])
def test_runs(tmp_path, labels):
    out = tmp_path / "table.md"
    command = [*COMMAND, "--losses", "approx_ndcg", "--shapes", "2x8", "--labels", labels]
    subprocess.run([*command, "--seconds", "0", "--out", out], check=True, capture_output=True)
    title, _, _, _, row = out.read_text().splitlines()
    assert title == "### 2 × 8"
    cells = row.strip("| ").split(" | ")
    assert cells[0] == "approx_ndcg"
    assert all(float(cell) > 0 for cell in cells[1:3])
