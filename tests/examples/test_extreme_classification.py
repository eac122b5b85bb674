"""The example learns from a file, and from its own points."""

import importlib.util
import pathlib

import pytest

from rank4class_tf import data

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "extreme_classification.py"


@pytest.mark.slow
def test_learns_from_files(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("extreme_classification_example", SCRIPT)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    for name, points, seed in (("train.txt", 1500, 1), ("test.txt.gz", 100, 2)):
        planted = data.planted_points(points, 300, 100, seed)
        data.write_extreme_classification(tmp_path / name, planted, 300, 100)
    files = ["--train", tmp_path / "train.txt", "--test", tmp_path / "test.txt.gz"]
    options = ["--num-sampled", 40, "--width", 32, "--epochs", 5, "--batch-size", 32]
    example.main([str(word) for word in [*files, *options, "--out", tmp_path / "m.keras"]])
    lines = dict(line.split(": ") for line in capsys.readouterr().out.splitlines() if ": " in line)
    # The most frequent label has a fifth of all; chance is below that.
    assert float(lines["precision_at_1"]) > 0.5
    assert (tmp_path / "m.keras").exists()
