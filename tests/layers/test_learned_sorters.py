"""Learned sorters: networks with random weights, weight files, and shipped weights."""

import json

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import layers
from scripts.reproductions import sodeep

from ..derivatives import value_and_gradient
from ..refused import refused

LENGTH = 6
SMALL = {
    layers.RecurrentSorter: {"frequencies": 2, "units": 3},
    layers.ConvolutionalSorter: {"length": LENGTH, "frequencies": 2, "units": 3},
    layers.SetSorter: {"frequencies": 2, "units": 3},
}
# Mean error over d that the shipped weights keep on every part of the test lists, by
# length.
ERRORS = {
    layers.RecurrentSorter: {10: 0.02, 100: 0.008, 300: 0.015},
    layers.ConvolutionalSorter: {100: 0.014},
    layers.SetSorter: {10: 0.01, 100: 0.0025, 300: 0.005},
}

every_sorter = pytest.mark.parametrize("cls", SMALL)


def small(cls, **kwargs):
    """A sorter with random weights, biases too."""
    sorter = cls(**SMALL[cls], **{"trainable": True, **kwargs})
    sorter.build((None, LENGTH))
    rng = np.random.default_rng(1)
    sorter.set_weights([rng.normal(0, 0.5, x.shape) for x in sorter.get_weights()])
    return sorter


def ranks_and_gradient(sorter, scores, mask=None):
    """Ranks, and the gradient of a sum of them in which no two weigh the same."""
    factors = tf.ones_like(scores) * tf.range(1.0, LENGTH + 1)
    return [
        x.numpy()
        for x in value_and_gradient(lambda s: sorter(s, mask=mask), scores, factors)
    ]


def test_place_and_value_of_masked_items_change_nothing(rng):
    """Of the sorter of one length; those of others are in the contract."""
    sorter = small(layers.ConvolutionalSorter)
    mask = np.array([[1, 1, 1, 1, 0, 0], [0, 1, 1, 0, 1, 1], [1, 0, 0, 1, 1, 1]], bool)
    scores = np.full(mask.shape, np.nan, "float32")
    scores[mask] = np.tile(rng.standard_normal(4), 3)
    ranks, gradient = ranks_and_gradient(sorter, scores, tf.constant(mask))
    of_valid = ranks[mask].reshape(3, 4)
    assert_allclose(of_valid, np.tile(of_valid[:1], (3, 1)), atol=1e-4)
    assert (ranks[~mask] == 0).all() and (gradient[~mask] == 0).all()
    assert np.isfinite(gradient).all() and (gradient[mask] != 0).all()


@every_sorter
def test_location_and_scale_change_nothing(cls, rng):
    sorter = small(cls)
    scores = rng.standard_normal((2, LENGTH)).astype("float32")
    ranks, gradient = ranks_and_gradient(sorter, scores)
    others, of_others = ranks_and_gradient(sorter, 8 * scores - 3)
    assert_allclose(others, ranks, rtol=1e-4)
    assert_allclose(8 * of_others, gradient, atol=1e-3)


def test_convolutions_against_keras(rng):
    """The way down to one vector, as convolutions of Keras."""
    sorter = small(layers.ConvolutionalSorter)
    scores = rng.standard_normal((2, LENGTH)).astype("float32")
    values = {x.name.split("/")[-1].split(":")[0]: x.numpy() for x in sorter.weights}

    def dense(name, inputs):
        return inputs @ values[f"{name}_kernel"] + values[f"{name}_bias"]

    z = (scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True)
    waves = np.sin(z / 2), np.sin(z), np.cos(z / 2), np.cos(z)
    features = np.stack([z, *waves, np.full_like(z, np.log(LENGTH) / 5)], axis=2)
    lists = (
        np.pad(np.maximum(dense("items", features), 0), [(0, 0), (0, 2), (0, 0)])
        * 8
        / LENGTH
    )
    for i in range(3):
        layer = keras.layers.Conv1D(3, 2, 2, activation="relu")
        layer.build(lists.shape)
        kernel = values[f"convolution_{i}_kernel"].reshape(2, 3, 3)
        layer.set_weights([kernel, values[f"convolution_{i}_bias"]])
        lists = layer(lists).numpy() + keras.layers.AveragePooling1D(2)(lists).numpy()
    both = np.concatenate([dense("gate", features) * lists, features], axis=2)
    hidden = np.maximum(dense("hidden", both), 0)
    shares = 0.5 + dense("output", np.concatenate([hidden, both], axis=2))[:, :, 0]
    # Ranks below 1/2 and above n + 1/2 are bent back.
    above = np.logaddexp(0, 5 * LENGTH * shares) / 5
    ranks = LENGTH + 0.5 - np.logaddexp(0, 5 * (LENGTH - above)) / 5
    assert_allclose(sorter(scores), ranks, rtol=1e-4, atol=1e-4)


@every_sorter
def test_a_checkpoint_has_the_weights(cls, tmp_path):
    sorter, other = small(cls), small(cls, trainable=False)
    other.set_weights([0 * x for x in other.get_weights()])
    path = tf.train.Checkpoint(sorter=sorter).write(tmp_path / "checkpoint")
    tf.train.Checkpoint(sorter=other).read(path).assert_consumed()
    for found, expected in zip(other.get_weights(), sorter.get_weights(), strict=True):
        assert_array_equal(found, expected)


@every_sorter
def test_file_of_weights(cls, tmp_path, rng):
    sorter = small(cls)
    path = tmp_path / "mine.npz"
    sorter.save_pretrained(path, seed=3)
    card = json.loads((tmp_path / "mine.json").read_text())
    assert card["seed"] == 3 and card["config"] == SMALL[cls]
    scores = rng.standard_normal((2, LENGTH)).astype("float32")
    loaded = cls.pretrained(path, name="mine")
    assert loaded.name == "mine" and not loaded.trainable_weights
    assert_array_equal(loaded(scores), sorter(scores))
    assert cls.pretrained(str(path), trainable=True).trainable_weights
    other = next(x for x in SMALL if x is not cls)
    with refused(f"must be a file of a {other.__name__}. Received: one of"):
        other.pretrained(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # The fuzzer damages it in other ways.
    path.write_bytes(content)
    with refused(r"`path` must be a file of weights.*mine.npz"):
        cls.pretrained(path)
    with refused(r"`path` must end in .npz"):
        sorter.save_pretrained(tmp_path / "mine")


@pytest.mark.parametrize("trainable", [False, True])
def test_fine_tuning_in_a_saved_model(trainable, tmp_path, rng, reloaded):
    scores = rng.standard_normal((8, 4)).astype("float32")
    small(layers.SetSorter).save_pretrained(tmp_path / "weights.npz")
    sorter = layers.SetSorter.pretrained(tmp_path / "weights.npz", trainable=trainable)
    before = sorter.get_weights()
    inputs = keras.Input((4,))
    model = keras.Model(inputs, sorter(keras.layers.Dense(LENGTH)(inputs)))
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True)
    model.fit(scores, np.tile(np.arange(1.0, 7), (8, 1)), verbose=0)
    changed = [
        (x != y).any() for x, y in zip(before, sorter.get_weights(), strict=True)
    ]
    assert any(changed) == trainable
    loaded = reloaded(model)
    assert bool(loaded.layers[-1].trainable_weights) == trainable
    assert_allclose(loaded(scores), model(scores), rtol=1e-6)


def test_configuration_leads_to_the_weights(tmp_path, rng):
    """A saved loss has nothing but the configuration of its sorter."""
    cls = layers.SetSorter
    path = tmp_path / "mine.npz"
    small(cls).save_pretrained(path)
    scores = rng.standard_normal((2, LENGTH)).astype("float32")
    mine = cls.pretrained(path, name="mine")
    assert_array_equal(cls.from_config(mine.get_config())(scores), mine(scores))
    path.unlink()
    lost = cls.from_config(mine.get_config())
    with pytest.warns(UserWarning, match=rf"random weights.*{cls.__name__}.pretrained"):
        lost(scores)
    assert lost.weights and not lost.trainable_weights
    shipped = cls.from_config(cls.pretrained().get_config())
    assert_array_equal(shipped(scores), cls.pretrained()(scores))


@pytest.mark.slow
@every_sorter
def test_shipped_weights(cls):
    """Errors and slopes are as promised, on some test lists, also where masks end."""
    sorter = cls.pretrained()
    for length, bound in ERRORS[cls].items():
        scores = sodeep.test_lists(100, length)
        assert sodeep.mean_rank_error(sorter, scores) < bound
        ranks = sorter(scores).numpy()
        assert_allclose(ranks.mean(axis=1), (length + 1) / 2, rtol=0.05)
    shares = sodeep.slope_shares(sodeep.own_slopes(sorter, 300))
    assert shares["vanishing_slopes"] < 0.04 and shares["wrong_slopes"] < 0.02
    scores = sodeep.test_lists(200, 50)
    mask = np.tile(np.arange(100) < 50, (200, 1))
    ranks = sorter(np.pad(scores, [(0, 0), (0, 50)]), mask=tf.constant(mask)).numpy()
    error = np.abs(ranks[:, :50] - sodeep.exact_ranks(scores)).mean() / 50
    assert error < 2.5 * ERRORS[cls][100] and (ranks[:, 50:] == 0).all()
