"""The benchmark of what stands where Keras's own stands runs."""

import pytest

from scripts.benchmarks import in_keras


@pytest.mark.slow
def test_it_runs(capsys):
    sizes = ["--eager", "4x10", "--classes", "50", "--steps", "20"]
    in_keras.main([*sizes, "--turns", "1", "--seconds", "0"])
    lines = capsys.readouterr().out.strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[-8:]]
    assert [row[0] for row in rows[:4]] == list(in_keras.CASES)
    assert all(float(row[-1]) > 0 for row in rows)
