"""One run: its end, its rate and its precision."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from scripts.reproductions import harness
from scripts.reproductions.harness import training

SETTINGS = harness.Settings(epochs=4, batch_size=8, learning_rate=0.01, patience=2)


@pytest.fixture(scope="module")
def problem():
    """Points around three centres, which a dense layer tells apart."""
    rng = np.random.default_rng(0)
    class_ids = rng.integers(0, 3, 60)
    values = (rng.normal(size=(60, 4)) + 2 * np.eye(4)[class_ids]).astype("float32")
    parts = {
        name: harness.Examples(values[part], class_ids[part])
        for name, part in (
            ("train", slice(0, 40)),
            ("validation", slice(40, 50)),
            ("test", slice(50, 60)),
        )
    }
    return harness.Problem(
        {"dataset": "points", "encoder": "dense"},
        lambda *how: harness.to_splits(parts, ("a", "b", "c"), *how),
        lambda splits: [keras.layers.Dense(5, "tanh")],
        SETTINGS,
    )


def test_run_ends_after_its_patience(problem, monkeypatch):
    scores = iter([0.3, 0.5, 0.4, 0.5, 0.6])

    def evaluate(self, *args, **kwargs):
        return dict.fromkeys(
            ("ndcg_at_5", "top_k_accuracy_at_1", "top_k_accuracy_at_5"), next(scores)
        )

    monkeypatch.setattr(keras.Sequential, "evaluate", evaluate)
    settings = dataclasses.replace(SETTINGS, epochs=5)
    row = harness.train(problem, settings, "softmax_loss", "dot_product")
    # The second of two equal epochs is no better one: two epochs after the first the run ends.
    assert row["best_epoch"] == 2
    assert row["validation"]["NDCG@5"] == [0.3, 0.5, 0.4, 0.5]


def test_rate_rises_and_falls():
    schedule = training._Schedule(0.1, rising=4, steps=20)
    rates = [float(schedule(tf.constant(step, tf.int64))) for step in range(21)]
    np.testing.assert_allclose(rates[:5], [0.02, 0.04, 0.06, 0.08, 0.1], rtol=1e-6)
    np.testing.assert_allclose(rates[4:], 0.1 * np.arange(16, -1, -1) / 16, rtol=1e-6, atol=1e-9)


def test_precision_is_that_of_the_layers_and_is_put_back(problem):
    seen = []

    def layers(splits):
        seen.append(keras.layers.Dense(5, "tanh"))
        return [seen[-1]]

    settings = dataclasses.replace(SETTINGS, epochs=1, precision="mixed_float16")
    row = harness.train(
        dataclasses.replace(problem, layers=layers), settings, "softmax_loss", "latent_cross"
    )
    assert seen[0].compute_dtype == "float16"
    assert keras.layers.Dense(1).compute_dtype == "float32"
    assert 0 <= row["test"]["NDCG@5"] <= 1


@pytest.mark.parametrize("examples_per_class", [None, 50])
def test_orders_are_those_of_epochs_that_are_read(examples_per_class):
    """Also where more iterators are made than are read, as by Keras 3."""
    load = harness.small_problem(
        "digits", "dense_layers", examples_per_class=examples_per_class
    ).load

    def epochs(seed, unread):
        train = load(32, seed).train
        orders = []
        for _ in range(3):
            for _ in range(unread):
                iter(train)
            orders.append(np.concatenate([ids for _, ids in train]))
        return np.stack(orders)

    whole = epochs(0, unread=0)
    assert (whole[0] != whole[1]).any() and (whole[1] != whole[2]).any()
    np.testing.assert_array_equal(epochs(0, unread=1), whole)
    assert (epochs(1, unread=0) != whole).any()
    if examples_per_class:
        # 1,077 images to learn from are three passes over 500.
        assert np.bincount(whole[0]).tolist() == [150] * 10


@pytest.mark.parametrize(("loss", "best"), [("softmax_loss", 0.1), ("mean_squared_loss", 0.3)])
def test_rate_and_decay_are_chosen_by_the_best_epoch_on_validation(loss, best, problem, tmp_path):
    class Runs(harness.Runs):
        def get(self, loss, head, learning_rate, seed, weight_decay):
            assert (head, seed) == ("latent_cross", 7)
            score = 1 - abs(learning_rate - {"softmax_loss": 0.1, "mean_squared_loss": 0.3}[loss])
            score -= abs(weight_decay - learning_rate)
            return {"validation": {"NDCG@5": [0.0, score, 0.2]}, "test": {"NDCG@5": -score}}

    runs = Runs(problem, SETTINGS, tmp_path, "points", [4])
    rates = (0.1, 0.2, 0.3)
    assert runs.best(loss, "latent_cross", rates, 7, rates) == (best, best)
    assert runs.best(loss, "latent_cross", (best,), 7) == (best, 0.0)


def test_decay_makes_the_weights_smaller(problem):
    norms = []
    for decay in (0.0, 50.0):
        dense = keras.layers.Dense(5, "tanh")
        settings = dataclasses.replace(SETTINGS, weight_decay=decay)
        of_dense = dataclasses.replace(problem, layers=lambda splits, dense=dense: [dense])
        harness.train(of_dense, settings, "softmax_loss", "dot_product")
        norms.append(np.linalg.norm(dense.get_weights()[0]))
    # Each step halves them, and an epoch has five.
    assert norms[1] < norms[0] / 4
