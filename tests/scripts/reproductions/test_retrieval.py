"""The study of retrieval: other methods against their definitions, and the whole of it in short."""

import numpy as np
import pytest

from scripts.reproductions import retrieval as script
from scripts.reproductions import retrieval_task
from tests.scripts.reproductions import movielens_files


@pytest.fixture
def task(tmp_path):
    return retrieval_task.Task(*retrieval_task.read(movielens_files.write(tmp_path / "tiny.zip")))


def test_figures_are_those_of_ranks(task, rng):
    scores = rng.normal(size=(24, 60))
    result = script.figures(scores, task, held_out=1)
    ranks = []
    for user, row in zip(task.users, scores, strict=True):
        left = np.setdiff1d(np.arange(60), user[:-1])
        ranks.append(1 + np.sum(row[left] > row[user[-1]]))
    ranks = np.array(ranks)
    assert result["recall_at_10"] == pytest.approx(np.mean(ranks <= 10))
    assert result["mrr"] == pytest.approx(np.mean(1 / ranks))
    gains = np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0)
    assert result["ndcg_at_10"] == pytest.approx(gains.mean())


def test_ease_is_its_closed_form(task):
    learned = script.interactions(task, 2).astype(float)
    inverse = np.linalg.inv(learned.T @ learned + 7 * np.eye(60))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    histories = script.interactions(task, 1)
    scores = script.ease(learned, 7)(histories)
    np.testing.assert_allclose(scores, histories @ weights, rtol=1e-6, atol=1e-9)


def test_item_knn_keeps_the_nearest(task):
    learned = script.interactions(task, 2)
    histories = np.eye(60, dtype=np.float32)
    scores = script.item_knn(learned, neighbours=4, shrink=3)(histories)
    counts = learned.sum(axis=0)
    expected = (learned.T @ learned) / (np.sqrt(np.outer(counts, counts)) + 3)
    np.fill_diagonal(expected, 0)
    for row, own in zip(scores, expected, strict=True):
        kept = np.flatnonzero(row)
        np.testing.assert_allclose(row[kept], own[kept], rtol=1e-5)
        assert len(kept) == 0 or own[kept].min() >= np.sort(own)[-4]


def test_another_archive_is_another_run(task, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "plan", lambda *seeds: {"popularity": ([], [0])})
    monkeypatch.setattr(script, "NEGATIVES", {})
    other = retrieval_task.Task(
        *retrieval_task.read(movielens_files.write(tmp_path / "other.zip", num_users=20))
    )
    args = script.parse_args(["--zip", "unused.zip", "--out", str(tmp_path)])
    (_, _, (first,)), (_, _, (second,)) = (next(script.study(t, args)) for t in (task, other))
    assert first["test"] != second["test"]
    again = retrieval_task.Task(task.films, [user.copy() for user in task.users])
    assert script.number_of_data(task) == script.number_of_data(again) == first["data"]


@pytest.mark.parametrize("flags", ["--seeds -1", "--tuning-seed -1", "--epochs 0", "--width 0"])
def test_bad_arguments(flags, capsys):
    with pytest.raises(SystemExit):
        script.parse_args(["--zip", "a.zip", *flags.split()])
    assert f"argument {flags.split()[0]}: must be a" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_study(tmp_path, monkeypatch, capsys):
    path = movielens_files.write(tmp_path / "tiny.zip")
    monkeypatch.setattr(script, "LOSSES", {"softmax": script.LOSSES["softmax"]})
    monkeypatch.setattr(script, "TEMPERATURES", (0.2,))
    monkeypatch.setattr(script, "LEARNING_RATES", (0.003, 0.001))
    monkeypatch.setattr(script, "NEGATIVES", {"in the batch alone": {"num_random": 0}})
    few = {name: choices[:1] for name, choices in script.SETTINGS.items()}
    monkeypatch.setattr(script, "SETTINGS", few | {"item-kNN": [{"neighbours": 5, "shrink": 0}]})
    options = ["--zip", str(path), "--out", str(tmp_path / "out"), "--seeds", "0", "--width", "8"]
    options += ["--epochs", "1", "--batch-size", "24"]
    script.main(options)
    text = (tmp_path / "out" / "results.md").read_text()
    for row in ("popularity", "item-kNN", "EASE", "autoencoder", "towers, softmax", "negatives in"):
        assert f"| {row}" in text or row in text
    files = sorted((tmp_path / "out" / "runs").iterdir())
    before = [file.stat().st_mtime_ns for file in files]
    script.main(options)  # Each run is there.
    assert [file.stat().st_mtime_ns for file in files] == before
