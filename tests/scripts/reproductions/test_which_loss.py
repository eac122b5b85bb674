import argparse
import json

import numpy as np
import pytest

from rank4class_tf.evaluation import Estimate, Evaluation
from scripts.reproductions import harness, which_loss
from scripts.reproductions.harness import training


@pytest.mark.slow
def test_short_form(tmp_path, capsys):
    call = (
        "--tasks digits --losses rankmax_loss list_mle_loss --heads cosine --seeds 0 1 --epochs 1 "
        f"--learning-rates 1e-3 1e-2 --weight-decays 0 0.5 --out {tmp_path}"
    ).split()
    which_loss.main(call)
    (task,) = json.loads((tmp_path / "which_loss.json").read_text()).values()
    names = [(row["loss"], row["head"]) for row in task["rows"]]
    # ListMLE is softmax where an example has one label.
    assert names == [
        ("softmax_loss", "dot_product"),
        ("rankmax_loss", "dot_product"),
        ("softmax_loss", "cosine"),
    ]
    for row in task["rows"]:
        assert 0 < row["Top-1"]["low"] <= row["Top-1"]["value"] <= row["Top-5"]["value"] <= 1
    assert list(task["chosen"]) == [", ".join(name) for name in names]
    for best in task["chosen"].values():
        assert best["rate"] in (1e-3, 1e-2) and best["weight_decay"] in (0, 0.5)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    # Three rows: two rates and two decays with a seed, and one of them with the other.
    assert len(files) == 3 * 5
    text = (tmp_path / "which_loss.md").read_text()
    assert text in capsys.readouterr().out
    which_loss.main(call)  # Trains nothing anew.
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_what_is_done_is_written_before_a_failure(tmp_path, monkeypatch):
    estimates = {name: Estimate(0.5, 0.25, 0.75) for name in harness.METRICS}
    evaluation = Evaluation(estimates, {}, {}, np.ones(3))

    def measure(task, args):
        if task == "movielens":
            raise OSError("no films")
        chosen = {"softmax_loss, dot_product": {"rate": 0.1, "weight_decay": 0.0}}
        return [harness.Row("softmax_loss", "dot_product", evaluation)], chosen

    monkeypatch.setattr(which_loss, "measure", measure)
    with pytest.raises(OSError, match="no films"):
        which_loss.main(["--tasks", "digits", "movielens", "--out", str(tmp_path)])
    assert "0.500" in (tmp_path / "which_loss.md").read_text()
    assert list(json.loads((tmp_path / "which_loss.json").read_text())) == ["digits"]


def test_units_are_of_the_heads_with_an_mlp(tmp_path, monkeypatch):
    seen = {}

    def train(problem, settings, loss, head, **arguments):
        seen[head] = arguments
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", train)
    for head in ("dot_product", *which_loss.HEADS):
        monkeypatch.setattr(
            which_loss, "candidates", lambda task, args, head=head: [("softmax_loss", head)]
        )
        with pytest.raises(KeyboardInterrupt):
            which_loss.main(["--tasks", "digits", "--units", "8", "4", "--out", str(tmp_path)])
    mlp = {"units": [8, 4]}
    assert seen == {
        "dot_product": {},
        "latent_cross": mlp,
        "concat": mlp,
        "cosine": {},
        "bilinear": {},
    }


def test_seeds_are_checked(capsys):
    with pytest.raises(SystemExit):
        which_loss.main(["--seeds", "0", "-1"])
    assert "argument --seeds: must be an integer in [0, 2**32), not '-1'" in capsys.readouterr().err


def test_texts_need_a_preset(capsys):
    with pytest.raises(SystemExit):
        which_loss.main(["--tasks", "goemotions"])
    assert "--preset must be given" in capsys.readouterr().err


def test_rows_that_are_softmax_with_one_label_are_left_out_there():
    args = argparse.Namespace(losses=list(which_loss.LOSSES), heads=[])
    mean = ("softmax_loss(positive_reduction=mean)", "dot_product")
    assert mean in which_loss.candidates("wordnet", args)
    assert mean not in which_loss.candidates("digits", args)
    assert which_loss.LOSSES[mean[0]]().get_config()["positive_reduction"] == "mean"
