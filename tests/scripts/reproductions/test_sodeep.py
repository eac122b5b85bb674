"""The reproduction, small: few lists, one or two epochs; the tasks where the data is at hand."""

import itertools
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import average_precision_score

from scripts import tables
from scripts.reproductions import sodeep as script
from scripts.reproductions import sodeep_tasks

RAW = pathlib.Path(__file__).resolve().parents[4] / "shared" / "data" / "raw"
has_data = pytest.mark.skipif(not RAW.exists(), reason="the real data is not at ../shared/data")
ARGUMENTS = "--sorters laplace --seeds 0 1 --learning-rates 0.01 --epochs 2 --lists 20"


def rows(text, method):
    """The cells of each row of a method, in all tables."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {method} |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_small_run(tmp_path, monkeypatch):
    arguments = f"--tasks table1 figure5 diabetes {ARGUMENTS} --out {tmp_path}".split()
    script.main(arguments)
    assert (tmp_path / "figure5.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "results.md").read_text()
    results = json.loads((tmp_path / "results.json").read_text())
    of_table, of_figure, of_task = rows(text, "laplace")
    assert of_table[2] == f"{results['table1']['laplace']['l1_100']:.4f}"
    assert of_figure[3] == "0.0%"
    runs = results["diabetes"]
    assert list(runs) == ["MSE", "L1", "laplace"]
    values = {m: [run["test"]["spearman"] for run in of_m] for m, of_m in runs.items()}
    assert of_task[2] == tables.plus_minus(values["laplace"])
    better = np.subtract(values["laplace"], values["MSE"])
    assert of_task[-2:] == [
        tables.plus_minus(better),
        f"{(better > 0).sum()} of 2",
    ]
    assert "test" not in json.loads((tmp_path / "diabetes-MSE-0.01-100.json").read_text())
    # Nothing is measured or trained again.
    monkeypatch.setattr(script.Trainer, "run", None)
    monkeypatch.setattr(script.sorting, "measure", None)
    script.main(arguments)
    assert (tmp_path / "results.md").read_text() == text


@pytest.mark.slow
@has_data
def test_tasks_with_data(tmp_path):
    tasks = "synthetic films retrieval"
    script.main(f"--tasks {tasks} {ARGUMENTS} --seeds 0 --data-dir {RAW} --out {tmp_path}".split())
    assert (tmp_path / "figure6.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((tmp_path / "results.json").read_text())
    # Far above what chance gives: 0.2 for a fifth of positives, 0, and 10 of 730.
    for task, figure, least in (
        ("synthetic", "mean_average_precision", 0.8),
        ("films", "spearman", 0.2),
        ("retrieval", "mean_hit_rate_at_10", 0.05),
    ):
        for method, (run,) in results[task].items():
            assert run["test"][figure] > least, (task, method)


@pytest.mark.parametrize(
    "flags",
    ["--epochs 0", "--seeds -1", "--tuning-seed -1", "--lists 0", "--learning-rates 0"]
    + ["--ranks-weight -1"],
)
def test_bad_arguments(flags, capsys):
    with pytest.raises(SystemExit):
        script.parse_args(flags.split())
    assert f"argument {flags.split()[0]}: must be a" in capsys.readouterr().err


def test_runs_repeat():
    trainer = script.Trainer(sodeep_tasks.diabetes(None), "laplace")
    first, other, again = (trainer.run(0.01, seed, 1, test=True) for seed in (3, 4, 3))
    assert first["test"] == again["test"] != other["test"]


def test_rate_is_chosen_on_validation(tmp_path, monkeypatch):
    best = {"MSE": 0.1, "L1": 0.3, "laplace": 0.2}

    class Trainer:
        def __init__(self, task, method):
            self.best = best[method]

        def run(self, rate, seed, epochs, test):
            value = 1 - abs(rate - self.best)
            result = {"validation": {"spearman": value}, "history": []}
            return result | ({"test": {"spearman": -value}} if test else {})

    monkeypatch.setattr(script, "Trainer", Trainer)
    args = script.parse_args(
        f"--sorters laplace --learning-rates 0.1 0.2 0.3 --seeds 0 1 --out {tmp_path}".split()
    )
    rates, runs = script.experiment("diabetes", args)
    assert rates == best
    assert [run["seed"] for run in runs["laplace"]] == [0, 1]
    assert [path.name for path in tmp_path.glob("*-0.3-0.json")] == ["diabetes-L1-0.3-0.json"]


def test_hinge_ap_is_the_maximum_over_orders(rng):
    labels = np.array([1, 0, 1, 0, 0, 1])
    for scale in (0.1, 2):
        scores = scale * rng.normal(size=6)
        positives, negatives = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)

        def agreement(order, scores=scores, positives=positives, negatives=negatives):
            """The mean over pairs of +-(s_i - s_j), + where the order has the positive above."""
            sign = np.where(order[positives][:, None] > order[negatives], 1, -1)
            return np.mean(sign * (scores[positives][:, None] - scores[negatives]))

        expected = max(
            1
            - average_precision_score(labels, np.array(order))
            + agreement(np.array(order))
            - agreement(labels)
            for order in itertools.permutations(range(6))
        )
        loss = sodeep_tasks.hinge_ap(tf.constant(labels[:, None]), tf.constant(scores[:, None]))
        assert float(loss) == pytest.approx(expected, rel=1e-9)


def test_hinge_ap_without_positives_is_zero():
    scores = tf.Variable([[1.0], [2.0]])
    with tf.GradientTape() as tape:
        loss = sodeep_tasks.hinge_ap(tf.zeros([2, 1]), scores)
    assert float(loss) == 0
    np.testing.assert_array_equal(tape.gradient(loss, scores), np.zeros((2, 1)))


@has_data
def test_films():
    films = sodeep_tasks.read_films(RAW)
    assert min(len(film.ratings) for film in films) == 5
    story = films[0]
    assert story.title == ["title toy", "title story"]
    assert story.year == 1995
    assert len(story.ratings) == len(set(story.users)) == 215
    assert "tag pixar" in story.tags
    assert "genre Animation" in story.genres


def test_bag():
    bag = sodeep_tasks.bag([["a", "b", "a"], ["b"], ["c"]], fewest=2)
    np.testing.assert_array_equal(bag, [[1], [1], [0]])
