"""The tables of calibration.py, in a short form."""

import types

import numpy as np
import pytest

from scripts.reproductions import calibration as script

ARGUMENTS = "--loss softmax_loss rankmax_loss --seeds 1 --epochs 15 --shots 20 --out".split()


@pytest.mark.slow
def test_tables(tmp_path, monkeypatch):
    script.main([*ARGUMENTS, str(tmp_path)])
    text = (tmp_path / "digits.md").read_text()
    head, _, *rows = (line.strip("| ").split(" | ") for line in text.split("\n\n")[0].splitlines())
    assert [row[0] for row in rows] == ["softmax_loss", "rankmax_loss"]
    (softmax, rankmax) = (dict(zip(head, row, strict=True)) for row in rows)
    assert softmax["ECE %, own"] == softmax["ECE %, softmax"] and rankmax["ECE %, own"] == "-"
    values = {
        name: float(rankmax[f"ECE %, {name}"].split(" ± ")[0]) for name in ("softmax", "calibrated")
    }
    assert values["calibrated"] < values["softmax"] / 2
    assert text.count("Sets for a coverage of") == 2
    # Nothing is trained again.
    monkeypatch.setattr(script, "problem_of", pytest.fail)
    script.main([*ARGUMENTS, str(tmp_path)])
    assert (tmp_path / "digits.md").read_text() == text


def test_scores_of_other_settings_are_not_reused(tmp_path, monkeypatch):
    common = ["--dataset", "goemotions", "--preset", "here/small", "--out", str(tmp_path)]
    made = []

    class Scorer:
        """Stands for a trained model; its scores tell how many there were before it."""

        def __init__(self, layers):
            made.append(layers)

        def compile(self, *args, **kwargs):
            pass

        fit = compile

        def predict(self, features, **kwargs):
            return np.full([len(features), 2], len(made), np.float32)

    few = np.zeros([3, 4], np.float32), np.zeros(3, np.int64)
    splits = types.SimpleNamespace(num_classes=2)
    examples = dict.fromkeys(("train", "choice", "conformal", "test"), few)
    settings = types.SimpleNamespace(learning_rate=0.1, batch_size=3)
    problem = types.SimpleNamespace(layers=lambda splits: [], settings=settings)
    monkeypatch.setattr(script, "problem_of", lambda args: problem)
    monkeypatch.setattr(script, "parts", lambda *args: (splits, examples))
    monkeypatch.setattr(script.keras, "Sequential", Scorer)

    def score(arguments):
        scored = script.trained_scores(script.parse_args(arguments), "softmax_loss", 0)
        return scored["test"][0].numpy().max()

    assert score(common) == score(common) == 1
    assert score([*common, "--pooling", "first"]) == 2
    assert score([*common, "--preset", "there/small"]) == 3


def test_parts_are_apart():
    args = script.parse_args(["--shots", "3"])
    _, parts = script.parts(args, script.problem_of(args), seed=1)
    assert [len(parts[name][1]) for name in ("train", "choice", "conformal", "test")] == [
        30,
        180,
        180,
        360,
    ]
    images = np.concatenate([features for features, _ in parts.values()])
    assert len(np.unique(images, axis=0)) == len(images)
