"""The example learns from a file, and from its own points."""

import numpy as np
import pytest
import tensorflow as tf

from examples import extreme_classification as example
from rank4class_tf import data

OPTIONS = ["--num-sampled", "40", "--width", "32", "--epochs", "5", "--batch-size", "32"]


def precision_at_1(capsys):
    lines = capsys.readouterr().out.splitlines()
    return float(dict(line.split(": ") for line in lines if ": " in line)["precision_at_1"])


@pytest.mark.slow
def test_learns_from_files(tmp_path, capsys):
    for name, points, seed in (("train.txt", 1500, 1), ("test.txt.gz", 100, 2)):
        planted = data.planted_points(points, 300, 100, seed)
        data.write_extreme_classification(tmp_path / name, planted, 300, 100)
    files = ["--train", str(tmp_path / "train.txt"), "--test", str(tmp_path / "test.txt.gz")]
    outputs = ["--out", str(tmp_path / "m.keras"), "--export", str(tmp_path / "index")]
    example.main([*files, *OPTIONS, *outputs])
    # The most frequent label has a fifth of all; chance is below that.
    assert precision_at_1(capsys) > 0.5
    assert (tmp_path / "m.keras").exists()
    assert np.load(tmp_path / "index" / "classes.npy").shape == (100, 32)
    assert np.load(tmp_path / "index" / "queries.npy").shape == (100, 32)


def test_own_points_are_in_three_parts(tmp_path):
    task = example.planted(tmp_path, 50, sizes=(20, 10, 10), num_features=30, num_labels=12)
    assert (task.num_features, task.num_classes) == (30, 12)
    train, validation, test = (
        tf.sparse.to_dense(next(iter(part))[0]).numpy()
        for part in (task.train, task.validation, task.test)
    )
    assert [len(part) for part in (train, validation, test)] == [20, 10, 10]
    for one, other in ((train[:10], validation), (validation, test), (train[:10], test)):
        assert (one != other).any()


def test_rows_have_a_rate_of_their_own_and_no_momentum():
    optimizer = example.get_optimizer(30.0, 3000.0, 0.9)
    assert (optimizer.momentum, optimizer.momentum_of_rows) == (0.9, False)
    assert float(optimizer.learning_rate) == pytest.approx(0.01)
    assert optimizer.row_multiplier == 3000


def test_a_bad_command_line(capsys):
    with pytest.raises(SystemExit):
        example.parse_args(["--test", "x.txt"])
    assert "--train and --test go together" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--out", "model"],
        ["--epochs", "-2"],
        ["--learning-rate", "nan"],
        ["--train", "a", "--test", "b", "--dataset", "wordnet"],
    ],
)
def test_flags_are_checked_before_training(flags, capsys):
    with pytest.raises(SystemExit):
        example.parse_args(flags)
    assert flags[0] in capsys.readouterr().err
