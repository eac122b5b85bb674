"""GumbelApproxNDCGLoss: its formula, its noise, and when it repeats itself."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import ops
from rank4class_tf.losses import ApproxNDCGLoss, GumbelApproxNDCGLoss

from . import oracles
from .formula import value_of
from .training import step


def test_value_and_gradient_by_definition(rng):
    scores, labels = rng.normal(size=(2, 6)), np.array([[0, 1.0, 0, 2, 0, 0], [1.0, 0, 0, 0, 0, 0]])
    loss = GumbelApproxNDCGLoss(5, gumbel_temperature=0.8, temperature=0.3, seed=3)
    seeds = [ops.fold_in(loss.next_seed(), t) for t in range(5)]
    noise = [ops.gumbel_noise([2, 6], seed, tf.float64) for seed in seeds]
    ids = np.array([[1, 3], [0, -1]])
    relevance = np.array([[1.0, 2.0], [1.0, 0.0]])
    variable = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = value_of(loss, variable, ids, relevance)
    gradient = tape.gradient(value, variable, output_gradients=tf.constant([2.0, 3.0], tf.float64))
    for row in range(2):

        def oracle(s, row=row):
            samples = [(s + g[row].numpy()) / 0.8 for g in noise]
            return np.mean([oracles.approx_ndcg(z, labels[row], 0.3) for z in samples])

        np.testing.assert_allclose(value[row], oracle(scores[row]), rtol=1e-10)
        expected = (2.0, 3.0)[row] * oracles.gradient(oracle, scores[row])
        np.testing.assert_allclose(gradient[row], expected, rtol=1e-5, atol=1e-8)


def test_samples_are_independent_of_one_another():
    """The variance of the mean of m samples is 1/m of that of one."""
    scores = np.zeros((4000, 5), np.float32)
    spread = {
        m: float(
            np.var(GumbelApproxNDCGLoss(m, seed=1, reduction="none")(np.zeros(4000, int), scores))
        )
        for m in (1, 4)
    }
    assert 3.6 < spread[1] / spread[4] < 4.4


def test_one_low_gumbel_temperature_is_sampling_from_softmax():
    """A hard Gumbel-max: the positive ranks first with the probability that softmax gives it."""
    scores = np.tile(np.log([0.6, 0.3, 0.1]), (20_000, 1)).astype(np.float32)
    loss = GumbelApproxNDCGLoss(1, gumbel_temperature=1e-3, seed=2, reduction="none")
    first = (loss(np.zeros(20_000, int), scores) < -0.99).numpy().mean()
    assert abs(first - 0.6) < 5 * np.sqrt(0.6 * 0.4 / 20_000)


def test_fresh_noise_at_each_step_and_the_same_in_each_run(rng):
    scores, ids = rng.normal(size=(3, 7)).astype(np.float32), [1, 2, 3]

    def run(call, seed=5):
        loss = GumbelApproxNDCGLoss(seed=seed)
        function = call(lambda *batch: step(loss, *batch))
        values = [float(function(ids, scores)) for _ in range(3)]
        # Without a gradient, there is no step.
        assert float(loss(ids, scores)) == float(loss(ids, scores)) not in values
        return values

    eager = run(lambda function: function)
    assert len(set(eager)) == 3
    assert run(lambda function: function) == eager
    np.testing.assert_allclose(run(tf.function), eager, rtol=1e-6)
    assert set(run(lambda function: function, seed=6)).isdisjoint(eager)
    compiled = run(lambda function: tf.function(function, jit_compile=True))
    np.testing.assert_allclose(compiled, eager, rtol=1e-5)


def test_without_a_seed_noise_follows_that_of_keras():
    scores = np.zeros((2, 9), np.float32)
    values = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        values.append(float(GumbelApproxNDCGLoss()([0, 1], scores)))
    assert values[0] == values[1] != values[2]
    assert GumbelApproxNDCGLoss().get_config()["seed"] is None


def test_replicas_draw_noise_of_their_own_in_and_outside_of_the_scope(two_devices):
    scores = tf.zeros([1, 9])

    def values(in_scope):
        if in_scope:
            with two_devices.scope():
                loss = GumbelApproxNDCGLoss(seed=1, reduction="sum")
        else:
            loss = GumbelApproxNDCGLoss(seed=1, reduction="sum")

        @tf.function
        def values_of_replicas():
            replicas = two_devices.run(lambda: step(loss, [0], scores))
            return two_devices.experimental_local_results(replicas)

        return [float(value) for _ in range(3) for value in values_of_replicas()]

    assert len(set(values(True))) == 6
    assert values(True) == values(True) == values(False)


def test_training_is_the_same_in_each_run(rng):
    features = rng.normal(size=(8, 3)).astype(np.float32)

    def train(seed):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(5)])
        model.compile(keras.optimizers.SGD(0.1), loss=GumbelApproxNDCGLoss(seed=seed))
        model.fit(features, np.arange(8) % 5, batch_size=4, epochs=2, verbose=0, shuffle=False)
        return model.get_weights()[0]

    weights = train(1)
    np.testing.assert_array_equal(train(1), weights)
    assert np.abs(train(2) - weights).max() > 1e-5


def test_masked_items_change_nothing(rng):
    scores = rng.normal(size=(2, 6)).astype(np.float32)
    labels = np.array([[1.0, 0, 0, -1, 0, -1], [0, 1.0, 2.0, -1, 0, 0]], np.float32)
    results = []
    for masked_score in (0.0, 1e10, np.nan):
        variable = tf.constant(np.where(labels < 0, masked_score, scores).astype(np.float32))
        with tf.GradientTape() as tape:
            tape.watch(variable)
            value = GumbelApproxNDCGLoss(seed=1, reduction="none")(labels, variable)
        results.append((value.numpy(), tape.gradient(value, variable).numpy()))
    for value, gradient in results:
        np.testing.assert_array_equal(value, results[0][0])
        np.testing.assert_array_equal(gradient, results[0][1])
        assert (gradient[labels < 0] == 0).all() and (gradient[labels >= 0] != 0).all()


def test_small_noise_is_approx_ndcg(rng):
    """Scores far apart: noise changes no soft rank that counts."""
    scores = np.array([[300.0, 200.0, 100.0, 0.0]], np.float32)
    expected = ApproxNDCGLoss()([1], scores)
    np.testing.assert_allclose(GumbelApproxNDCGLoss(seed=1)([1], scores), expected, rtol=1e-6)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="`num_samples` must be a positive integer"):
        GumbelApproxNDCGLoss(num_samples=0)
    with pytest.raises(ValueError, match="`seed` must be an integer in "):
        GumbelApproxNDCGLoss(seed=-1)
    with pytest.raises(ValueError, match="`gumbel_temperature` must be"):
        GumbelApproxNDCGLoss(gumbel_temperature=0)
