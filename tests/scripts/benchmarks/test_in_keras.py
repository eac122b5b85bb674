"""The benchmark of what stands where Keras's own stands runs."""

import pytest

from scripts.benchmarks import in_keras


@pytest.mark.slow
def test_it_runs(capsys):
    in_keras.main(["--steps", "20", "--turns", "1", "--seconds", "0"])
    lines = capsys.readouterr().out.strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[-4:]]
    assert rows[0][0] == "first step of fit"
    assert all(float(row[-1]) > 0 for row in rows)
