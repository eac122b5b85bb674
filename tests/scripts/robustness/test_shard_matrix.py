"""A row of scripts/robustness/shard_matrix.py."""

import numpy as np
import pytest

from scripts.robustness import shard_matrix as script


@pytest.mark.slow
def test_two_shards_end_as_one_device(tmp_path, capsys):
    cases = ["softmax", "mined"]
    options = ["--keras", "3", "--kinds", "2 shards", "--cases", *cases]
    script.main([*options, "--folder", str(tmp_path)])
    differences = capsys.readouterr().out.splitlines()[-1].strip("| ").split(" | ")[2:]
    assert len(differences) == len(cases)
    assert all(float(x) <= 2e-6 for x in differences)


def test_a_difference_is_found():
    expected = {"a|SGD|0": np.ones(2), "b|SGD|0": np.zeros(2)}
    found = {"a|SGD|0": np.array([1, 1.5]), "b|SGD|0": np.ones(2)}
    assert script.difference(found, expected, "a") == 0.5
