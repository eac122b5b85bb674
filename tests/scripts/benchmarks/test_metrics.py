"""The benchmark of the metrics runs."""

import importlib.util
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_runs():
    command = [sys.executable, "-m", "scripts.benchmarks.metrics", "--shapes", "8x16"]
    table = subprocess.run(
        [*command, "--seconds", "0"], check=True, capture_output=True, text=True
    ).stdout
    both = importlib.util.find_spec("tf_keras") is not None
    assert table.count("| 8x16 | best | NDCG(5) |") == 1 + both
    assert "| 8x16 | random | scikit-learn ndcg_score(5) |" in table
