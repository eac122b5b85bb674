"""What random losses draw: a part of the model's state, which training alone moves."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras, losses, ops
from rank4class_tf.losses import GumbelApproxNDCGLoss

from ..contract.tables import LOSSES
from ..derivatives import value_and_gradient
from . import oracles
from .formula import value_of

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


def step(loss, ids, scores):
    """The value of a loss, whose gradient is taken as training does."""
    return value_and_gradient(lambda x: loss(ids, x), scores)[0]


@pytest.mark.keras2
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


@pytest.mark.keras2
def test_a_seed_of_its_own_is_saved(batch, tmp_path):
    model = compiled(GumbelApproxNDCGLoss())
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss.seed is None
    assert_equal(fit(loaded, batch, 2), fit(model, batch, 2))


@pytest.mark.keras2
def test_resumes_after_an_interruption(batch, tmp_path):
    """By Keras's own callback."""

    class Interruption(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def model():
        return compiled(losses.StochasticNegativeMiningLoss(2, seed=1))

    def backup():
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))

    expected = fit(model(), batch, 4)
    with pytest.raises(KeyboardInterrupt):
        fit(model(), batch, 4, callbacks=[backup(), Interruption()])
    assert_equal(fit(model(), batch, 4, callbacks=[backup()]), expected)


@pytest.mark.keras2
def test_evaluation_moves_nothing(make, batch):
    expected = fit(compiled(make()), batch, 3)
    model = compiled(make())
    assert model.evaluate(*batch, verbose=0) == model.evaluate(*batch, verbose=0)
    assert_equal(fit(model, batch, 3, validation_data=batch), expected)


@pytest.mark.keras2
def test_the_same_in_and_outside_of_the_scope(batch, two_devices):
    make = RANDOM["gumbel_approx_ndcg"]
    outside = make()
    with two_devices.scope():
        inside = make()
    expected = fit(compiled(inside, two_devices), batch, 3)
    assert_equal(fit(compiled(outside, two_devices), batch, 3), expected)
    np.testing.assert_array_equal(np.array(outside._state), [1, 6])


def test_replicas_draw_noise_of_their_own(two_devices):
    loss, scores = GumbelApproxNDCGLoss(seed=1, reduction="sum"), tf.zeros([1, 9])

    @tf.function
    def values_of_replicas():
        replicas = two_devices.run(lambda: step(loss, [0], scores))
        return two_devices.experimental_local_results(replicas)

    assert len({float(value) for _ in range(3) for value in values_of_replicas()}) == 6


@pytest.mark.skipif(not _keras.KERAS_3, reason="Keras 2 loads no file of another compilation.")
def test_a_file_without_the_loss_changes_nothing(batch, tmp_path):
    model = compiled("mse")
    model.save_weights(tmp_path / "model.weights.h5")
    other = compiled(losses.WARPLoss(num_trials=2, seed=3))
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(np.array(other.loss._state), [3, 0])


@pytest.mark.parametrize("name", RANDOM)
def test_fresh_draws_at_each_step_and_the_same_in_each_run(name, rng):
    scores, ids = rng.normal(size=(8, 30)).astype(np.float32), tf.range(8)

    def run(loss, call=lambda function: function):
        function = call(functools.partial(step, loss))
        values = [float(function(ids, scores)) for _ in range(3)]
        # Without a gradient, there is no step.
        assert float(loss(ids, scores)) == float(loss(ids, scores)) not in values
        return values

    eager = run(RANDOM[name]())
    assert len(set(eager)) == 3 and run(RANDOM[name]()) == eager
    assert set(run(of_seed_9(RANDOM[name]()))).isdisjoint(eager)
    np.testing.assert_allclose(run(RANDOM[name](), tf.function), eager, rtol=1e-5)
    xla = run(RANDOM[name](), functools.partial(tf.function, jit_compile=True))
    np.testing.assert_allclose(xla, eager, rtol=1e-5)


def test_without_a_seed_noise_follows_that_of_keras():
    scores = np.zeros((2, 9), np.float32)
    values = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        values.append(float(GumbelApproxNDCGLoss()([0, 1], scores)))
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize(
    ("make", "oracle"),
    [
        (GumbelApproxNDCGLoss, oracles.approx_ndcg),
        (losses.GumbelApproxMRRLoss, oracles.approx_mrr),
    ],
)
def test_gumbel_noise_by_definition(make, oracle, rng):
    """Of the draws that the loss makes."""
    scores, labels = rng.normal(size=(1, 6)), np.array([0, 1.0, 0, 2, 0, 0])
    loss = make(5, gumbel_temperature=0.8, temperature=0.3, seed=3)
    seeds = [ops.fold_in(loss.next_seed(), t) for t in range(5)]
    noise = [ops.gumbel_noise([1, 6], seed, tf.float64).numpy()[0] for seed in seeds]

    def definition(s):
        return np.mean([oracle((s + g) / 0.8, labels, temperature=0.3) for g in noise])

    formula = functools.partial(value_of, loss, class_ids=[[1, 3]], relevance=[[1.0, 2.0]])
    value, gradient = value_and_gradient(formula, scores, tf.constant([2.0], tf.float64))
    np.testing.assert_allclose(value[0], definition(scores[0]), rtol=1e-10)
    expected = 2 * oracles.gradient(definition, scores[0])
    np.testing.assert_allclose(gradient[0], expected, rtol=1e-5, atol=1e-8)


def test_samples_of_noise_are_independent_of_one_another():
    """The variance of the mean of m samples is 1/m of that of one."""
    lists = np.zeros(4000, int), np.zeros((4000, 5), np.float32)
    one, four = (np.var(GumbelApproxNDCGLoss(m, seed=1, reduction="none")(*lists)) for m in (1, 4))
    assert 3.6 < one / four < 4.4


def test_masked_items_change_no_noisy_loss(rng):
    scores = rng.normal(size=(2, 6)).astype(np.float32)
    labels = np.array([[1.0, 0, 0, -1, 0, -1], [0, 1.0, 2.0, -1, 0, 0]], np.float32)
    results = []
    for masked_score in (0.0, 1e10, np.nan):
        masked = np.where(labels < 0, masked_score, scores).astype(np.float32)
        loss = functools.partial(GumbelApproxNDCGLoss(seed=1, reduction="none"), labels)
        results.append(value_and_gradient(loss, masked))
        assert_equal(results[-1], results[0])
    gradient = results[0][1].numpy()
    assert (gradient[labels < 0] == 0).all() and (gradient[labels >= 0] != 0).all()
