"""The reproduction, small: one method beside negative sampling, on few artificial points."""

import json

import numpy as np
import pytest

from rank4class_tf import losses
from scripts import experiments
from scripts import reproduce_snm as script

ARGUMENTS = (
    "--tasks planted --mined 1 --seeds 0 --learning-rates 0.3 --epochs 2 --evaluate-every 1 "
    "--width 8 --num-sampled 20 --planted-points 400 --planted-classes 100 --batch-size 40"
)


@pytest.mark.slow
def test_small_run(tmp_path, monkeypatch):
    arguments = [*ARGUMENTS.split(), "--out", str(tmp_path)]
    script.main(arguments)
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")
    runs = json.loads((tmp_path / "results.json").read_text())["planted"]
    assert list(runs) == ["negative sampling", "Top-1"]
    tuning = json.loads((tmp_path / "planted-Top-1-0.3-100.json").read_text())
    assert "test" not in tuning and [point["epoch"] for point in tuning["history"]] == [1, 2]
    # The table's ratios are those of the figures in the files.
    text = (tmp_path / "results.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| Top-1 | "))
    (top,), (plain,) = runs["Top-1"], runs["negative sampling"]
    ratio = top["test"]["precision_at_1"] / plain["test"]["precision_at_1"]
    assert row.split(" | ")[1] == f"{ratio:.3f} ± 0.000"
    # Nothing is trained again.
    monkeypatch.setattr(script, "run", None)
    script.main(arguments)
    assert (tmp_path / "results.md").read_text() == text


@pytest.mark.parametrize(
    ("method", "num_weighed"), [("Top-2", 2), (script.BASELINE, 5)], ids=["top_2", "baseline"]
)
def test_methods_are_means_over_negatives(method, num_weighed, rng):
    scores = rng.normal(size=(3, 6)) / 4
    loss = losses.OrderedWeightedLoss("binary", weights=script.weights(method, num_sampled=5))
    highest = np.sort(scores[:, 1:], axis=1)[:, -num_weighed:]
    expected = 1 - scores[:, 0] + np.mean(np.maximum(1 + highest, 0), axis=1)
    assert float(loss(np.zeros(3, int), scores)) == pytest.approx(expected.mean(), rel=1e-6)


def test_learning_rate_is_chosen_on_validation(tmp_path, monkeypatch):
    best = {"negative sampling": 0.1, "Top-1": 0.3}

    def run(task, method, rate, seed, args, test):
        value = 1 - abs(rate - best[method])
        figures = {metric: -value for metric in script.METRICS}
        return {"validation": {"recall_at_5": value}, "history": []} | (
            {"test": figures} if test else {}
        )

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script, "most_frequent", lambda task: {"test": {}})
    monkeypatch.setitem(script.TASKS, "planted", lambda args: lambda seed: None)
    args = script.parse_args(
        f"{ARGUMENTS} --seeds 0 1 --learning-rates 0.1 0.2 0.3 --out {tmp_path}".split()
    )
    rates, runs, _ = script.experiment("planted", args)
    assert rates == best
    assert [result["seed"] for result in runs["Top-1"]] == [0, 1]
    assert not list(tmp_path.glob("*-0.2-0.json"))


def test_runs_of_other_settings_are_not_reused(tmp_path):
    calls = []

    def get(settings, needs=()):
        return experiments.cached(
            tmp_path / "run.json", settings, lambda: calls.append(1) or {"x": len(calls)}, needs
        )

    assert get({"a": 1})["x"] == get({"a": 1})["x"] == get({"a": 1}, ["x"])["x"] == 1
    assert get({"a": 2})["x"] == 2
    get({"a": 2}, ["test"])
    assert len(calls) == 3


@pytest.mark.parametrize(("patience", "last"), [(10, 7), (2, 6)])
def test_the_weights_of_the_best_epoch_stay(patience, last):
    class Model:
        weights = 0

        def get_weights(self):
            return self.weights

        def set_weights(self, weights):
            self.weights = weights

    model = Model()
    figures = {2: 0.3, 4: 0.5, 6: 0.4, 7: 0.1}
    history, best = experiments.train_to_best(
        model,
        epochs=7,
        evaluate_every=2,
        train=model.set_weights,
        evaluate=lambda: {"ndcg": figures[model.weights]},
        metric="ndcg",
        patience=patience,
    )
    assert [point["epoch"] for point in history] == [e for e in (2, 4, 6, 7) if e <= last]
    assert (best["epoch"], best["ndcg"], model.weights) == (4, 0.5, 4)
