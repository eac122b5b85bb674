"""What random losses draw: a part of the model's state, which training alone moves."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras, losses

from ..contract.tables import LOSSES

pytestmark = pytest.mark.keras2

RANDOM = {case.name: case.make for case in LOSSES if case.random}


# Of all items, and in rounds.
@pytest.fixture(params=["gumbel_approx_ndcg", "warp_sampled"])
def make(request):
    return RANDOM[request.param]


@pytest.fixture
def batch(rng):
    return rng.normal(size=(8, 3)).astype(np.float32), rng.integers(0, 6, 8)


def of_seed_9(loss):
    return type(loss).from_config({**loss.get_config(), "seed": 9})


def compiled(loss, scope=None):
    with (scope or tf.distribute.get_strategy()).scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(6)])
        model.compile(keras.optimizers.SGD(0.5), loss=loss)
    return model


def fit(model, batch, epochs, run_eagerly=False, **kwargs):
    model.run_eagerly = run_eagerly
    model.fit(*batch, batch_size=4, epochs=epochs, verbose=0, shuffle=False, **kwargs)
    return model.get_weights()


def assert_equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_resumes_bit_by_bit(make, batch, tmp_path):
    train = functools.partial(fit, run_eagerly=True)
    expected = train(compiled(make()), batch, 4)
    assert np.abs(train(compiled(of_seed_9(make())), batch, 4)[0] - expected[0]).max() > 1e-4

    model = compiled(make())
    train(model, batch, 2)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    checkpoint = tf.train.Checkpoint(model=model, loss=model.loss).write(str(tmp_path / "model"))

    assert_equal(train(keras.models.load_model(tmp_path / "model.keras"), batch, 2), expected)
    other = compiled(make())
    train(other, batch, 1)  # Keras 2 loads weights of an optimizer that has some.
    other.load_weights(tmp_path / "model.weights.h5")
    assert_equal(train(other, batch, 2), expected)
    other = compiled(of_seed_9(make()))
    tf.train.Checkpoint(model=other, loss=other.loss).read(checkpoint)
    assert_equal(train(other, batch, 2), expected)


def test_a_seed_of_its_own_is_saved(batch, tmp_path):
    model = compiled(losses.GumbelApproxNDCGLoss())
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss.seed is None
    assert_equal(fit(loaded, batch, 2), fit(model, batch, 2))


def test_resumes_after_an_interruption(batch, tmp_path):
    """By Keras's own callback."""

    class Interruption(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def model():
        return compiled(losses.StochasticNegativeMiningLoss(2, seed=1))

    expected = fit(model(), batch, 4)
    with pytest.raises(KeyboardInterrupt):
        fit(model(), batch, 4, callbacks=[backup(tmp_path), Interruption()])
    assert_equal(fit(model(), batch, 4, callbacks=[backup(tmp_path)]), expected)


def backup(folder):
    return keras.callbacks.BackupAndRestore(str(folder / "backup"))


def test_evaluation_moves_nothing(make, batch):
    expected = fit(compiled(make()), batch, 3)
    model = compiled(make())
    assert model.evaluate(*batch, verbose=0) == model.evaluate(*batch, verbose=0)
    assert_equal(fit(model, batch, 3, validation_data=batch), expected)


def test_the_same_in_and_outside_of_the_scope(batch, two_devices):
    make = RANDOM["gumbel_approx_ndcg"]
    outside = make()
    with two_devices.scope():
        inside = make()
    expected = fit(compiled(inside, two_devices), batch, 3)
    assert_equal(fit(compiled(outside, two_devices), batch, 3), expected)
    np.testing.assert_array_equal(np.array(outside._state), [1, 6])


def test_a_file_without_the_loss_changes_nothing(batch, tmp_path):
    if not _keras.KERAS_3:
        pytest.skip("Keras 2 loads no file of a model that was compiled otherwise.")
    model = compiled("mse")
    model.save_weights(tmp_path / "model.weights.h5")
    other = compiled(losses.WARPLoss(num_trials=2, seed=3))
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(np.array(other.loss._state), [3, 0])
