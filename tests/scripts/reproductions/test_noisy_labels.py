"""A short form of the study of labels that confuse classes."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses, metrics
from scripts.reproductions import noisy_labels as study
from scripts.reproductions import noisy_labels_report as report
from scripts.reproductions.stacked_training import Settings, Trainer


@pytest.fixture(scope="module")
def digits():
    return study.digits()


def test_every_method_has_as_many_settings(digits):
    for dataset in (digits, study.wide(digits)):
        numbers = {len(dataset.settings(method.smoothing)) for method in study.METHODS.values()}
        assert numbers == {12}


@pytest.mark.parametrize("kind", study.KINDS)
def test_transitions(digits, kind):
    matrix = study.transitions(digits, kind, 30)
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    np.testing.assert_allclose(np.diag(matrix), 0.7)
    number = {"symmetric": 9, "three": 3}.get(kind, 1)
    assert ((matrix > 0).sum(axis=1) == 1 + number).all()


def test_labels_are_wrong_as_planned(digits):
    matrix = study.transitions(digits, "three", 40)
    problems = [study.problem(digits, matrix, seed) for seed in range(8)]
    rows = np.concatenate([p.rows[0] for p in problems])
    labels = np.concatenate([p.labels[0] for p in problems])
    of_class = np.zeros((10, 10))
    np.add.at(of_class, (digits.class_ids[rows], labels), 1)
    np.testing.assert_allclose(of_class / of_class.sum(axis=1, keepdims=True), matrix, atol=0.06)
    one = problems[0]
    assert len(np.unique(np.concatenate(one.rows))) == 1797
    np.testing.assert_array_equal(one.labels[2], digits.class_ids[one.rows[2]])


def test_forward_correction_is_that_of_the_package(rng):
    scores = tf.constant(rng.normal(size=(4, 3)), tf.float32)
    matrix = np.array([[0.7, 0.3, 0.0], [0.0, 0.6, 0.4], [0.1, 0.1, 0.8]], np.float32)
    actual = study.forward_correction([0, 2, 1, 0], scores, tf.stack([matrix] * 4))
    expected = losses.ForwardCorrectionLoss(matrix).call([0, 2, 1, 0], scores)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_measures_are_those_of_the_package(rng):
    labels = rng.integers(0, 10, 60)
    scores = rng.normal(size=(60, 10)).astype("float32") + 2 * np.eye(10, dtype="float32")[labels]
    layer = losses.SoftmaxLoss().probabilities
    measured = study.measure(labels, scores, (scores, labels), layer)
    found = {
        "accuracy": metrics.TopKAccuracy(1),
        "ndcg@5": metrics.NDCG(5),
        "macro": metrics.MacroAverage(metrics.TopKAccuracy(1), 10),
        "ece_own": metrics.ExpectedCalibrationError(probabilities=layer),
    }
    for name, metric in found.items():
        metric.update_state(labels, scores)
        assert measured[name] == pytest.approx(float(metric.result()), abs=1e-6)
    assert "ece_calibrated" in measured


def settings(number, smoothing=0.0):
    return Settings(np.full(number, 1e-3), np.full(number, 0.1), np.full(number, smoothing))


def test_each_model_learns_as_if_it_were_the_only_one(digits):
    matrix = study.transitions(digits, "lookalike", 30)
    problems = [study.problem(digits, matrix, seed) for seed in (3, 4)]
    trainer = Trainer(study.as_function(losses.RankmaxLoss()), 16, 64, epochs=2)
    both = trainer.train(study.stack(digits, problems, None), settings(2))
    for i, one in enumerate(problems):
        only = trainer.train(study.stack(digits, [one], None), settings(1))
        for of_both, of_one in zip(both.last, only.last, strict=True):
            np.testing.assert_allclose(of_both[i], of_one[0], rtol=1e-3, atol=1e-5)
        assert only.accuracy[0] == pytest.approx(both.accuracy[i], abs=0.01)


def test_smoothing_is_that_of_the_softmax_loss(digits):
    task = study.stack(digits, [study.problem(digits, np.eye(10), 0)], None)
    mixed = Trainer(study.as_function(losses.SoftmaxLoss()), 16, 64, epochs=1)
    own = Trainer(study.as_function(losses.SoftmaxLoss(label_smoothing=0.3)), 16, 64, epochs=1)
    mixed, own = mixed.train(task, settings(1, 0.3)), own.train(task, settings(1))
    for a, b in zip(mixed.last, own.last, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


@pytest.fixture
def short(digits, monkeypatch):
    few = dataclasses.replace(digits, epochs=2, hidden=16, rates=(3e-3,), decays=(0.0,))
    monkeypatch.setattr(study, "digits", lambda: few)


@pytest.mark.slow
def test_the_study_goes_on_and_is_reported(short, tmp_path, monkeypatch):
    methods = ["softmax", "softmax, smoothing", "forward, estimated"]
    call = ["--out", str(tmp_path), "--seeds", "2", "--kinds", "lookalike", "--methods", *methods]
    study.main([*call, "--levels", "30"])
    path = tmp_path / "digits" / "lookalike_30_softmax.json"
    run = json.loads(path.read_text())
    assert len(run["seeds"]) == 2
    assert run["setting"] in [setting[:3] for setting in run["tuning"]]
    before = path.stat().st_mtime_ns
    study.main([*call, "--levels", "0", "30"])
    assert path.stat().st_mtime_ns == before
    tables = report.write(tmp_path)
    assert "| the digit that looks most alike | 0 % | 30 % |" in tables
    assert (tmp_path / "noisy_labels_digits.png").exists()
    assert json.loads((tmp_path / "noisy_labels.json").read_text())["digits"]
    assert (tmp_path / "noisy_labels.md").read_text().strip() == tables


@pytest.mark.slow
def test_rankmax_beats_softmax_where_labels_confuse_lookalikes(digits):
    matrix = study.transitions(digits, "lookalike", 30)
    problems = [study.problem(digits, matrix, seed) for seed in range(5)]
    task = study.stack(digits, problems, None)
    test = np.stack([p.rows[2] for p in problems])

    def accuracy(loss):
        trainer = Trainer(study.as_function(loss), digits.hidden, 64, digits.epochs)
        best = trainer.train(task, settings(5)).best
        predicted = np.argmax(trainer.scores(best, tf.constant(digits.features), test), axis=-1)
        return (predicted == digits.class_ids[test]).mean()

    assert accuracy(losses.RankmaxLoss()) - accuracy(losses.SoftmaxLoss()) >= 0.03
