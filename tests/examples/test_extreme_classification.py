"""The example learns from files, and exports for the search."""

import numpy as np
import pytest

from examples import extreme_classification as example
from tests import planted_points


def test_learns_from_files(tmp_path):
    files = ["--train", planted_points.write(tmp_path / "train.txt", 1500, 300, 100)]
    files += ["--test", planted_points.write(tmp_path / "test.txt.gz", 100, 300, 100, seed=2)]
    outputs = ["--out", str(tmp_path / "new" / "m.keras"), "--export", str(tmp_path / "index")]
    options = "--num-sampled 40 --width 32 --epochs 5 --batch-size 32".split()
    results = example.main([*files, *options, *outputs])
    # The most frequent label has a fifth of all; chance is below that.
    assert results["precision_at_1"] > 0.5
    assert (tmp_path / "new" / "m.keras").exists()
    assert np.load(tmp_path / "index" / "classes.npy").shape == (100, 32)
    assert np.load(tmp_path / "index" / "queries.npy").shape == (100, 32)


def test_files_that_do_not_fit_are_refused(tmp_path):
    files = ["--train", planted_points.write(tmp_path / "a.txt", 20, 30, 12), "--test"]
    for name, sizes in (("c.txt", (40, 12)), ("d.txt", (30, 13))):
        with pytest.raises(SystemExit, match="--test must have the features and labels"):
            example.main([*files, planted_points.write(tmp_path / name, 20, *sizes)])


def test_rows_have_a_rate_of_their_own_and_no_momentum():
    optimizer = example.get_optimizer(30.0, 3000.0, 0.9)
    assert (optimizer.momentum, optimizer.row_momentum) == (0.9, False)
    assert float(optimizer.learning_rate) == pytest.approx(0.01)
    assert optimizer.row_multiplier == 3000


def test_it_needs_data(capsys):
    with pytest.raises(SystemExit):
        example.main(["--test", "x.txt"])
    assert "required: --train" in capsys.readouterr().err
