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


def write(path, points=20, num_features=30, num_labels=12, seed=1):
    planted = data.planted_points(points, num_features, num_labels, seed)
    data.write_extreme_classification(path, planted, num_features, num_labels)
    return str(path)


def test_files_that_do_not_fit_are_refused(tmp_path, capsys):
    files = ["--train", write(tmp_path / "a.txt"), "--test"]
    assert example.parse_args([*files, write(tmp_path / "b.txt", seed=2)]).train
    for name, sizes in (("c.txt", {"num_features": 40}), ("d.txt", {"num_labels": 13})):
        with pytest.raises(SystemExit):
            example.parse_args([*files, write(tmp_path / name, **sizes)])
        error = capsys.readouterr().err
        assert "--test must have as many features and labels as --train, 30 and 12" in error


@pytest.mark.parametrize(("option", "name"), [("--out", "m.keras"), ("--export", "index")])
def test_what_cannot_be_written_is_refused(option, name, tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        example.parse_args([option, str(tmp_path / "file" / name)])
    assert f"{option} must be where files can be written: " in capsys.readouterr().err


def test_a_model_is_kept_when_its_evaluation_fails(tmp_path, monkeypatch):
    class Model:
        def fit(self, *args, **kwargs):
            pass

        def save(self, path):
            path.write_text("saved")

        def evaluate(self, *args, **kwargs):
            raise OSError("no test")

    monkeypatch.setattr(example, "load", lambda args, folder: example.Task(*[None] * 5))
    monkeypatch.setattr(example, "build", lambda *args: Model())
    with pytest.raises(OSError, match="no test"):
        example.main(["--out", str(tmp_path / "new" / "m.keras")])
    assert (tmp_path / "new" / "m.keras").read_text() == "saved"


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
    assert (optimizer.momentum, optimizer.row_momentum) == (0.9, False)
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
        ["--momentum", "1.5"],
        ["--seed", "-1"],
        ["--train", "a", "--test", "b", "--dataset", "wordnet"],
    ],
)
def test_flags_are_checked_before_training(flags, capsys):
    with pytest.raises(SystemExit):
        example.parse_args(flags)
    assert flags[0] in capsys.readouterr().err
