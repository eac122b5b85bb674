"""One run: its rate, its precision, and how it goes on after an interruption."""

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


class Interrupted(Exception):
    """What ends a run before its time."""


@pytest.mark.slow
def test_interrupted_run_ends_as_the_whole_one(problem, tmp_path, monkeypatch):
    settings = dataclasses.replace(SETTINGS, warmup=0.2, clip=0.5, seed=3)
    arguments = problem, settings, "rankmax_loss", "dot_product"
    whole = harness.train(*arguments)
    save = training._Progress._save

    def save_and_fail(self):
        save(self)
        if self.epochs == 2:
            raise Interrupted

    def fail(*args):
        raise Interrupted

    epochs = len(whole["validation"]["NDCG@5"])
    for where, name, function, kept in (
        (training._Progress, "_save", save_and_fail, ["1", "2"]),
        (training, "evaluate", fail, [str(epochs - 1), str(epochs)]),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, function)
            with pytest.raises(Interrupted):
                harness.train(*arguments, folder=tmp_path / "state")
        assert sorted(path.name for path in (tmp_path / "state").iterdir()) == kept
    resumed = harness.train(*arguments, folder=tmp_path / "state")
    assert len(resumed["validation"]["NDCG@5"]) == len(whole["validation"]["NDCG@5"])
    assert resumed["best_epoch"] == whole["best_epoch"]
    for name in ("Top-1", "Top-5", "NDCG@5"):
        np.testing.assert_allclose(
            resumed["validation"][name], whole["validation"][name], rtol=1e-5
        )
        assert resumed["test"][name] == pytest.approx(whole["test"][name], rel=1e-5)
    assert not (tmp_path / "state").exists()


def test_state_of_another_run_is_removed(tmp_path):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)

    def progress(rate):
        return training._Progress({"rate": rate}, "val", 2, tmp_path, lambda *_: None)

    writer = progress(0.1)
    writer.set_model(model)
    writer.on_epoch_end(0, {"val": 0.5})
    same, other = progress(0.1), progress(0.2)
    same.read()
    assert same.epochs == 1
    other.read()
    assert other.epochs == 0 and not tmp_path.exists()


@pytest.mark.parametrize("name", ["progress.npz", "state.data-00000-of-00001", "state.index"])
@pytest.mark.parametrize("epochs", [[2], [1, 2]], ids=["newest", "all"])
def test_damaged_state(problem, name, epochs, tmp_path):
    """The epoch before it is taken; without any, the error names the files, which stay."""
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)

    def progress():
        return training._Progress({}, "val", 2, tmp_path, lambda *_: None)

    writer, weights = progress(), []
    writer.set_model(model)
    for epoch, score in enumerate([0.25, 0.5]):
        model.set_weights([weight + 1 for weight in model.get_weights()])
        weights.append(model.get_weights())
        writer.on_epoch_end(epoch, {"val": score})
    for epoch in epochs:
        path = tmp_path / str(epoch) / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 16
        path.write_bytes(content)

    reader = progress()
    if len(epochs) == 2:
        with pytest.raises(ValueError, match=f"{tmp_path}/2 cannot be read.*{tmp_path}/1 cannot"):
            reader.read()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
        return
    warned = f"{tmp_path}/2 cannot be read.*Going on from {tmp_path}/1"
    with pytest.warns(UserWarning, match=warned):
        reader.read()
    reader.restore(model, np.zeros([1, 4], "float32"))
    assert (reader.epochs, reader.best_epoch, reader.history) == (1, 0, {"val": [0.25]})
    for found in (reader._best_weights, model.get_weights()):
        for x, y in zip(found, weights[0], strict=True):
            np.testing.assert_array_equal(x, y)


def test_run_ends_after_its_patience(problem, monkeypatch):
    scores = iter([0.3, 0.5, 0.4, 0.5, 0.6])

    def fit(self, *args, callbacks, epochs, **kwargs):
        callbacks[0].set_model(self)
        for epoch in range(epochs):
            callbacks[0].on_epoch_end(
                epoch,
                {
                    f"val_{name}": value
                    for name, value in zip(
                        ("ndcg_at_5", "top_1_accuracy", "top_5_accuracy"),
                        [next(scores)] * 3,
                        strict=True,
                    )
                },
            )
            if self.stop_training:
                break

    monkeypatch.setattr(keras.Sequential, "fit", fit)
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
def test_an_epoch_sees_the_same_whether_or_not_others_were_read(examples_per_class):
    """Also where more iterators are made than are read, as by Keras 3."""
    load = harness.small_problem(
        "digits", "dense_layers", examples_per_class=examples_per_class
    ).load

    def epochs(train, count):
        orders = []
        for _ in range(count):
            iter(train)
            orders.append(np.concatenate([ids for _, ids in train]))
        return np.stack(orders)

    whole = epochs(load(32, 0, 0).train, 3)
    assert (whole[0] != whole[1]).any() and (whole[1] != whole[2]).any()
    np.testing.assert_array_equal(epochs(load(32, 0, 2).train, 1)[0], whole[2])
    assert len(load(32, 0, 0).train) == -(-whole.shape[1] // 32) or examples_per_class
