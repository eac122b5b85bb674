"""What random losses draw: a part of the model's state, which training alone moves."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import _keras, losses
from rank4class_tf.losses import GumbelApproxNDCGLoss

from ..contract.tables import LOSSES
from ..derivatives import value_and_gradient
from ..rounding import assert_all_close
from ..small_models import linear

pytestmark = pytest.mark.slow

RANDOM = {case.name: case.make for case in LOSSES if case.random}


# Of all items, and in rounds.
@pytest.fixture(params=["gumbel_approx_ndcg", "warp_sampled"])
def make(request):
    return RANDOM[request.param]


@pytest.fixture
def batch(rng, normal):
    return normal(8, 3), rng.integers(0, 6, 8)


def of_seed_9(loss):
    return type(loss).from_config({**loss.get_config(), "seed": 9})


def compiled(loss, scope=None):
    with (scope or tf.distribute.get_strategy()).scope():
        keras.utils.set_random_seed(1)
        model = linear(3, 6, optimizer=keras.optimizers.SGD(0.5), loss=loss)
    return model


def fit(model, batch, epochs, run_eagerly=False, **kwargs):
    model.run_eagerly = run_eagerly
    model.fit(*batch, batch_size=4, epochs=epochs, verbose=0, shuffle=False, **kwargs)
    return model.get_weights()


def step(loss, ids, scores):
    """The value of a loss, whose gradient is taken as training does."""
    return value_and_gradient(lambda x: loss(ids, x), scores)[0]


@pytest.mark.keras2
def test_resumes_bit_by_bit(make, batch, tmp_path):
    train = functools.partial(fit, run_eagerly=True)
    expected = train(compiled(make()), batch, 4)
    assert (
        np.abs(train(compiled(of_seed_9(make())), batch, 4)[0] - expected[0]).max()
        > 1e-4
    )

    model = compiled(make())
    train(model, batch, 2)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    checkpoint = tf.train.Checkpoint(model=model, loss=model.loss).write(
        str(tmp_path / "model")
    )

    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_all_close(train(loaded, batch, 2), expected, 0)
    other = compiled(make())
    train(other, batch, 1)  # Keras 2 loads weights of an optimizer that has some.
    other.load_weights(tmp_path / "model.weights.h5")
    assert_all_close(train(other, batch, 2), expected, 0)
    other = compiled(of_seed_9(make()))
    tf.train.Checkpoint(model=other, loss=other.loss).read(checkpoint)
    assert_all_close(train(other, batch, 2), expected, 0)


@pytest.mark.keras2
def test_a_seed_of_its_own_is_saved(batch, reloaded):
    model = compiled(GumbelApproxNDCGLoss())
    loaded = reloaded(model)
    assert loaded.loss.seed is None
    assert_all_close(fit(loaded, batch, 2), fit(model, batch, 2), 0)


@pytest.mark.keras2
def test_resumes_after_an_interruption(batch, tmp_path):
    """By Keras's own callback, which keeps the model alone."""

    def stop(epoch, logs):
        if epoch == 2:
            raise KeyboardInterrupt

    def train(*others):
        backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
        model = compiled(losses.WARPLoss(num_trials=2, seed=1))
        return fit(model, batch, 4, callbacks=[backup, *others])

    expected = fit(compiled(losses.WARPLoss(num_trials=2, seed=1)), batch, 4)
    with pytest.raises(KeyboardInterrupt):
        train(keras.callbacks.LambdaCallback(on_epoch_begin=stop))
    assert_all_close(train(), expected, 0)


@pytest.mark.keras2
def test_evaluation_moves_nothing(make, batch):
    expected = fit(compiled(make()), batch, 3)
    model = compiled(make())
    assert model.evaluate(*batch, verbose=0) == model.evaluate(*batch, verbose=0)
    assert_all_close(fit(model, batch, 3, validation_data=batch), expected, 0)


@pytest.mark.keras2
def test_the_same_in_and_outside_of_the_scope(batch, two_devices):
    make = RANDOM["gumbel_approx_ndcg"]
    outside = make()
    with two_devices.scope():
        inside = make()
    expected = fit(compiled(inside, two_devices), batch, 3)
    assert_all_close(fit(compiled(outside, two_devices), batch, 3), expected, 0)
    assert_array_equal(np.array(outside._state), [1, 6])


def test_replicas_draw_noise_of_their_own(two_devices):
    loss = GumbelApproxNDCGLoss(seed=1, reduction="sum")
    scores = tf.zeros([1, 9])

    @tf.function
    def values_of_replicas():
        replicas = two_devices.run(lambda: step(loss, [0], scores))
        return two_devices.experimental_local_results(replicas)

    assert len({float(value) for _ in range(3) for value in values_of_replicas()}) == 6


@pytest.mark.skipif(
    not _keras.KERAS_3, reason="Keras 2 loads no file of another compilation."
)
def test_a_file_without_the_loss_changes_nothing(batch, tmp_path):
    compiled("mse").save_weights(tmp_path / "model.weights.h5")
    other = compiled(losses.WARPLoss(num_trials=2, seed=3))
    other.load_weights(tmp_path / "model.weights.h5")
    assert_array_equal(np.array(other.loss._state), [3, 0])


@pytest.mark.parametrize("name", RANDOM)
def test_fresh_draws_at_each_step_and_the_same_in_each_run(name, normal):
    scores = normal(8, 30)
    ids = tf.range(8)

    def run(loss, call=lambda function: function):
        function = call(functools.partial(step, loss))
        values = [float(function(ids, scores)) for _ in range(3)]
        # Without a gradient, there is no step.
        assert float(loss(ids, scores)) == float(loss(ids, scores)) not in values
        return values

    eager = run(RANDOM[name]())
    assert len(set(eager)) == 3 and run(RANDOM[name]()) == eager
    assert set(run(of_seed_9(RANDOM[name]()))).isdisjoint(eager)
    assert_allclose(run(RANDOM[name](), tf.function), eager, rtol=1e-5)
    xla = run(RANDOM[name](), functools.partial(tf.function, jit_compile=True))
    assert_allclose(xla, eager, rtol=1e-5)


def test_without_a_seed_noise_follows_that_of_keras():
    scores = np.zeros((2, 9), "float32")
    values = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        values.append(float(GumbelApproxNDCGLoss()([0, 1], scores)))
    assert values[0] == values[1] != values[2]


def test_masked_items_change_no_noisy_loss(normal):
    scores = normal(2, 6)
    labels = np.array([[1.0, 0, 0, -1, 0, -1], [0, 1.0, 2.0, -1, 0, 0]], "float32")
    results = []
    for masked_score in (0.0, 1e10, np.nan):
        masked = np.where(labels < 0, masked_score, scores).astype("float32")
        loss = functools.partial(GumbelApproxNDCGLoss(seed=1, reduction="none"), labels)
        results.append(value_and_gradient(loss, masked))
        assert_all_close(results[-1], results[0], 0)
    gradient = results[0][1].numpy()
    assert (gradient[labels < 0] == 0).all() and (gradient[labels >= 0] != 0).all()
