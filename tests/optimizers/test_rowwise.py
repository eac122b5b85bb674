"""The row-wise optimizers against dense references in NumPy, written out."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import _keras, layers, optimizers

from ..refused import refused
from ..rounding import assert_all_close

LEARNING_RATE = 0.25  # exact in float32, in which Keras keeps it


def sgd(weights, gradients, state):
    return weights - LEARNING_RATE * gradients


def momentum(weights, gradients, state):
    state["v"] = 0.9 * state.get("v", 0.0) - LEARNING_RATE * gradients
    return weights + state["v"]


def nesterov(weights, gradients, state):
    state["v"] = 0.9 * state.get("v", 0.0) - LEARNING_RATE * gradients
    return weights + 0.9 * state["v"] - LEARNING_RATE * gradients


def adagrad(weights, gradients, state):
    state["a"] = state.get("a", 0.125) + gradients**2
    return weights - LEARNING_RATE * gradients / np.sqrt(state["a"] + 1e-7)


def adam(weights, gradients, state):
    state["t"] = state.get("t", 0) + 1
    state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * gradients
    state["s"] = 0.999 * state.get("s", 0.0) + 0.001 * gradients**2
    rate = LEARNING_RATE * np.sqrt(1 - 0.999 ** state["t"]) / (1 - 0.9 ** state["t"])
    return weights - rate * state["m"] / (np.sqrt(state["s"]) + 1e-7)


CASES = {
    "sgd": (optimizers.RowwiseSGD, {}, sgd),
    "momentum": (optimizers.RowwiseSGD, {"momentum": 0.9}, momentum),
    "nesterov": (optimizers.RowwiseSGD, {"momentum": 0.9, "nesterov": True}, nesterov),
    "rows without": (
        optimizers.RowwiseSGD,
        {"momentum": 0.9, "row_momentum": False},
        sgd,
    ),
    "adagrad": (
        optimizers.RowwiseAdagrad,
        {"initial_accumulator_value": 0.125},
        adagrad,
    ),
    "adam": (optimizers.RowwiseAdam, {}, adam),
}
cases = pytest.mark.parametrize("make, kwargs, rule", CASES.values(), ids=CASES)


def variable(values):
    layer = keras.layers.Layer()
    weight = layer.add_weight(
        name="w", shape=values.shape, initializer="zeros", dtype="float64"
    )
    weight.assign(values)
    return weight


def steps(optimizer, weight, gradients, jit_compile=None):
    """Applies the gradients in a function that is compiled as in `fit`."""
    optimizer.build([weight])

    @tf.function(jit_compile=jit_compile)
    def step(gradient):
        optimizer.apply_gradients([(gradient, weight)])

    for gradient in gradients:
        step(gradient)
    return np.array(weight)


def sparse(rng, ids, shape):
    """A gradient in rows, and the same as an array: rows that stand twice add up."""
    values = rng.normal(size=(len(ids), *shape[1:]))
    dense = np.zeros(shape)
    np.add.at(dense, ids, values)
    return tf.IndexedSlices(
        tf.constant(values), tf.constant(ids), tf.constant(shape)
    ), dense


@cases
def test_rows_follow_the_dense_rule(make, kwargs, rule, rng, jit_compile):
    """Those that all batches touch; without moments also those that come and go."""
    start = rng.normal(size=(7, 3))
    batches = [[5, 2, 5, 2, 5]] * 4
    if make is optimizers.RowwiseAdagrad or rule is sgd:
        batches = [[5, 2, 5], [2, 2], [5, 3, 2, 2]]
    pairs = [sparse(rng, ids, start.shape) for ids in batches]
    optimizer = make(learning_rate=LEARNING_RATE, **kwargs)
    weights = steps(
        optimizer, variable(start), [gradient for gradient, _ in pairs], jit_compile
    )
    expected = start
    state = {}
    for _, dense in pairs:
        expected = rule(expected, dense, state)
    assert_allclose(weights[[2, 3, 5]], expected[[2, 3, 5]], rtol=1e-9)
    assert_array_equal(weights[[0, 1, 4, 6]], start[[0, 1, 4, 6]])


def test_moments_of_adam_rest_while_a_row_is_not_touched(rng):
    start = rng.normal(size=(2, 3))
    pairs = [sparse(rng, ids, start.shape) for ids in ([0, 1], [1], [0, 1])]
    optimizer = optimizers.RowwiseAdam(learning_rate=LEARNING_RATE)
    weights = steps(optimizer, variable(start), [g for g, _ in pairs])
    first, _, third = (dense[0] for _, dense in pairs)
    mean = 0.1 * first
    square = 0.001 * first**2
    row = start[0] - LEARNING_RATE * np.sqrt(0.001) / 0.1 * mean / (
        np.sqrt(square) + 1e-7
    )
    mean = 0.9 * mean + 0.1 * third
    square = 0.999 * square + 0.001 * third**2
    rate = LEARNING_RATE * np.sqrt(1 - 0.999**3) / (1 - 0.9**3)
    row -= rate * mean / (np.sqrt(square) + 1e-7)
    assert_allclose(weights[0], row, rtol=1e-9)


@pytest.mark.keras2
@cases
def test_dense_gradients_are_those_of_keras(make, kwargs, rule, rng):
    start = rng.normal(size=(4, 3))
    gradients = [tf.constant(rng.normal(size=(4, 3))) for _ in range(3)]
    peer = getattr(keras.optimizers, make.__name__.removeprefix("Rowwise"))
    of_peer = {name: value for name, value in kwargs.items() if name != "row_momentum"}
    ours, theirs = (
        steps(cls(learning_rate=LEARNING_RATE, **of_cls), variable(start), gradients)
        for cls, of_cls in ((make, kwargs), (peer, of_peer))
    )
    assert_array_equal(ours, theirs)


@cases
def test_rows_and_dense_weights_have_rates_of_their_own(make, kwargs, rule, rng):
    """With a multiplier, rows move at the multiplied rate, dense weights as without."""
    gradient, _ = sparse(rng, [1, 0, 1], (2, 3))
    dense = tf.constant(rng.normal(size=(4,)))
    start = rng.normal(size=(2, 3))
    of_dense = rng.normal(size=(4,))

    def train(learning_rate, row_multiplier):
        optimizer = make(
            learning_rate=learning_rate, row_multiplier=row_multiplier, **kwargs
        )
        table = variable(start)
        weight = variable(of_dense)
        optimizer.build([table, weight])
        for _ in range(3):
            optimizer.apply_gradients([(gradient, table), (dense, weight)])
        return np.array(table), np.array(weight)

    table, weight = train(LEARNING_RATE, 8.0)
    assert_array_equal(table, train(8 * LEARNING_RATE, 1.0)[0])
    assert_array_equal(weight, train(LEARNING_RATE, 1.0)[1])
    assert (table != train(LEARNING_RATE, 1.0)[0]).all()


@pytest.mark.slow
@pytest.mark.keras2
@cases
def test_training_goes_on_where_it_was_saved(make, kwargs, rule, rng, normal, tmp_path):
    """Both rates, even if changed on the way, by a saved model and by a checkpoint."""
    ids = rng.integers(0, 5, [8, 2])
    target = normal(8, 3)

    def new():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Embedding(5, 4)])
        model.add(keras.layers.Flatten())
        model.add(keras.layers.Dense(3))
        optimizer = make(LEARNING_RATE, row_multiplier=4.0, name="mine", **kwargs)
        model.compile(optimizer, "mse", run_eagerly=True)
        return model

    def fit(model):
        model.fit(ids, target, batch_size=4, epochs=2, verbose=0, shuffle=False)
        return [np.array(weight) for weight in model.trainable_variables]

    model = new()
    fit(model)
    model.optimizer.learning_rate = LEARNING_RATE / 2
    model.save(tmp_path / "model.keras")
    checkpoint = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    expected = fit(model)
    restored = new()
    tf.train.Checkpoint(model=restored).restore(checkpoint)
    for resumed in (keras.models.load_model(tmp_path / "model.keras"), restored):
        assert resumed.optimizer.get_config() == model.optimizer.get_config()
        resumed.run_eagerly = True
        assert_all_close(fit(resumed), expected, 1e-6, 1e-7)


def test_adagrad_moves_rows_of_small_gradients_from_the_first_step():
    """As of class embeddings of length 1, where one example in 256 has the gradient."""
    weight = variable(np.zeros([2, 4]))
    gradient = np.full([1, 4], 1 / 256 / 2)
    row = tf.IndexedSlices(tf.constant(gradient), tf.constant([1]), tf.constant([2, 4]))
    moved = steps(optimizers.RowwiseAdagrad(0.25), weight, [row])
    assert_allclose(moved[1], -0.25 * gradient[0] / np.sqrt(gradient[0] ** 2 + 1.1e-7))
    assert (moved[1] < -0.2).all() and not moved[0].any()


def test_a_schedule_holds_for_both_rates():
    table = variable(np.zeros([1, 1]))
    weight = variable(np.zeros([1]))
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.5, 0.25])
    optimizer = optimizers.RowwiseSGD(schedule, row_multiplier=8)
    optimizer.build([table, weight])
    row = tf.IndexedSlices(
        tf.ones([1, 1], tf.float64), tf.constant([0]), tf.constant([1, 1])
    )
    for rate in (0.5, 0.5 + 0.25):
        optimizer.apply_gradients([(row, table), (tf.ones([1], tf.float64), weight)])
        assert np.array(table) == -8 * rate and np.array(weight) == -rate


@cases
@pytest.mark.parametrize(
    "clipping", [{"clipvalue": 1.0}, {"clipnorm": 2.0}, {"global_clipnorm": 2.0}]
)
def test_clipping_sees_the_sum_of_a_row(make, kwargs, rule, clipping, rng):
    gradient, dense = sparse(rng, [2, 0, 2, 2, 2], (3, 4))
    assert (np.abs(dense[2]) > 1).any() and np.linalg.norm(dense) > 2
    once = tf.IndexedSlices(
        tf.constant(dense[[0, 2]]), tf.constant([0, 2]), tf.constant([3, 4])
    )
    ours, expected = (
        steps(
            make(learning_rate=LEARNING_RATE, **kwargs, **clipping),
            variable(np.ones([3, 4])),
            g,
        )
        for g in ([gradient] * 2, [once] * 2)
    )
    assert_allclose(ours, expected, rtol=1e-9)


@cases
def test_options_that_change_no_step_leave_rows_rows(make, kwargs, rule, rng):
    """Untouched rows rest, and touched ones move by a rate of their own."""
    gradients = [
        sparse(rng, ids, (4, 3))[0] for ids in ([0, 2, 2], [2, 2, 2], [3, 2, 2])
    ]
    start = rng.normal(size=(4, 3))
    arguments = {"learning_rate": LEARNING_RATE, "row_multiplier": 4.0, **kwargs}
    expected = steps(make(**arguments), variable(start), gradients)
    assert_array_equal(expected[1], start[1])
    assert (expected[0] != start[0]).all()
    for name in ("clipnorm", "clipvalue", "global_clipnorm", "use_ema", "weight_decay"):
        option = {name: {"use_ema": True, "weight_decay": 1e-30}.get(name, 1e9)}
        weights = steps(make(**arguments, **option), variable(start), gradients)
        assert_allclose(weights, expected, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("clipping", [{}, {"clipnorm": 1.0}])
def test_slices_may_be_lists(clipping):
    def moved(*parts):
        weight = variable(np.ones([3, 1]))
        optimizer = optimizers.RowwiseAdam(**clipping)
        optimizer.apply_gradients([(tf.IndexedSlices(*parts), weight)])
        return np.array(weight)

    parts = [[1.0], [2.0]], [2, 2], [3, 1]
    assert_array_equal(moved(*parts), moved(*map(tf.constant, parts)))


@pytest.mark.skipif(not _keras.KERAS_3, reason="Keras 2 has no such argument.")
@pytest.mark.parametrize("name", ["gradient_accumulation_steps", "loss_scale_factor"])
def test_what_keras_has_for_dense_gradients_raises(name):
    with refused(f"`{name}` must be None"):
        optimizers.RowwiseAdam(**{name: 2})


def test_sgd_without_momentum_keeps_nothing_but_the_weights():
    weight = variable(np.ones([50, 40]))
    optimizer = optimizers.RowwiseSGD(0.5)
    optimizer.build([weight])
    optimizer.apply_gradients([(tf.ones_like(weight), weight)])
    assert not any(50 * 40 == tf.size(v) for v in optimizer.variables)


@pytest.mark.keras2
@pytest.mark.parametrize("name", ["RowwiseSGD", "RowwiseAdagrad", "RowwiseAdam"])
def test_averages_of_weights_of_half_precision(name):
    """With momentum .999, which bfloat16 rounds to 1; Keras 2 averages in bfloat16."""
    table = layers.ClassTable(4, 2, dtype="bfloat16")
    table.build((None, 2))
    optimizer = getattr(optimizers, name)(0.5, use_ema=True, ema_momentum=0.999)
    optimizer.build(table.trainable_variables)
    values = []
    for _ in range(3):
        optimizer.apply_gradients([(tf.ones([4, 2], "bfloat16"), table.embeddings)])
        values.append(np.array(table.rows(), np.float64))
    optimizer.finalize_variable_values(table.trainable_variables)
    if _keras.KERAS_3:
        expected = values[0]  # The first average.
        for value in values[1:]:
            expected = 0.999 * expected + 0.001 * value
        average = optimizer._model_variables_moving_average[0]
        assert_allclose(average, expected, rtol=1e-6)
        assert np.abs(expected - values[0]).max() > 1e-4
        assert_array_equal(table.rows(), tf.cast(average, "bfloat16"))
    assert table.rows().dtype == "bfloat16"


@pytest.mark.keras2
def test_a_table_keeps_its_own_rate_on_several_devices(two_devices):
    with two_devices.scope():
        table = layers.ClassTable(3, 2, initializer="zeros")
        table.build((None, 2))
        optimizer = optimizers.RowwiseSGD(0.5, row_multiplier=10.0)
        weights = table.trainable_variables
        optimizer.build(weights)
    step = tf.function(
        lambda: optimizer.apply_gradients([(tf.ones([3, 2]), weights[0])])
    )
    two_devices.run(step)
    # Two devices, each with a gradient of 1: 0 - 0.5 * 10 * 2.
    assert_array_equal(table.rows(), np.full([3, 2], -10.0))
