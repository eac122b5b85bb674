"""Losses on ranks of outputs: values against NumPy and SciPy, and what training with them does."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import layers, losses


@keras.utils.register_keras_serializable()
class ExactSorter(layers.Sorter):
    """Ranks by comparing all pairs; without a gradient."""

    def soft_ranks(self, scores, mask):
        above = scores[:, tf.newaxis] > scores[..., tf.newaxis]
        if mask is not None:
            above &= mask[:, tf.newaxis]
        return 1 + tf.reduce_sum(tf.cast(above, scores.dtype), axis=-1)


def ranks(values):
    """Descending, 1-based."""
    return scipy.stats.rankdata(-np.asarray(values))


@pytest.mark.parametrize("axis", ["batch", "items"])
def test_spearman_loss_is_the_correlation(axis, rng):
    labels, outputs = rng.normal(size=(2, 30, 7))
    loss = losses.SpearmanLoss(ExactSorter(), axis, reduction="none")(labels, outputs)
    assert loss.shape == (30,)
    lists = (
        zip(labels.T, outputs.T, strict=True)
        if axis == "batch"
        else zip(labels, outputs, strict=True)
    )
    d = 30 if axis == "batch" else 7
    correlations = [scipy.stats.spearmanr(y, s).statistic for y, s in lists]
    expected = np.mean((1 - np.array(correlations)) * (d**2 - 1) / (6 * d**2))
    np.testing.assert_allclose(np.mean(loss), expected, rtol=1e-5)


def test_equal_labels_share_their_mean_rank(rng):
    labels, outputs = rng.integers(0, 3, size=20).astype(float), rng.normal(size=20)
    loss = losses.SpearmanLoss(ExactSorter())(labels, outputs[:, np.newaxis])
    np.testing.assert_allclose(
        loss, np.mean((ranks(labels) - ranks(outputs)) ** 2) / 400, rtol=1e-6
    )


@pytest.mark.parametrize("axis", ["batch", "items"])
def test_mean_average_precision_loss(axis, rng):
    labels = rng.integers(-1, 2, size=(12, 5))
    labels[:, 3] = 0  # A class without positives counts for nothing.
    labels[4] = -1
    outputs = rng.normal(size=(12, 5))
    loss = losses.MeanAveragePrecisionLoss(ExactSorter(), axis, reduction="none")(labels, outputs)
    lists = (labels.T, outputs.T) if axis == "batch" else (labels, outputs)
    means = []
    for y, s in zip(*lists, strict=True):
        valid = y >= 0
        of_positives = ranks(s[valid])[y[valid] > 0] / max(valid.sum(), 1)
        means.append(of_positives.mean() if len(of_positives) else np.nan)
    expected = np.nanmean(means) if axis == "batch" else np.mean(np.nan_to_num(means))
    np.testing.assert_allclose(np.mean(loss), expected, rtol=1e-5)


@pytest.mark.parametrize("margin", [None, 0.3])
def test_rank_triplet_loss(margin, rng):
    similarities = rng.normal(size=(9, 9))
    labels = np.array([0, 1, 2, 3, 4, 5, 6, 7, 0])
    loss = losses.RankTripletLoss(ExactSorter(), margin, reduction="none")(labels, similarities)
    alpha = 1 / 9 if margin is None else margin
    expected = np.zeros(9)
    for matrix in (similarities, similarities.T):
        for i, row in enumerate(matrix):
            f = ranks(row) / 9
            negatives = f[labels != labels[i]]
            expected[i] += max(0, alpha + f[i] - negatives.min())
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.once
def test_alignment(rng):
    labels, outputs = rng.normal(size=(2, 10, 1)).astype(np.float32)
    plain = losses.SpearmanLoss()(labels, outputs)
    schedule = losses.AlignmentSchedule(0.5, epochs=2)
    for alignment in (0.5, schedule):
        value = losses.SpearmanLoss(alignment=alignment)(labels, outputs)
        np.testing.assert_allclose(
            value - plain, 0.5 * np.mean(np.abs(outputs - labels)), rtol=1e-5
        )
    loss = losses.SpearmanLoss(alignment=schedule)
    compiled = tf.function(loss)
    compiled(labels, outputs)
    schedule.on_epoch_begin(2)
    copy = losses.get(keras.utils.serialize_keras_object(loss))
    np.testing.assert_allclose(copy(labels, outputs), plain, rtol=1e-5)
    np.testing.assert_allclose(compiled(labels, outputs), plain, rtol=1e-5)
    pairs = losses.RankTripletLoss(alignment=1.0)(np.arange(3), np.eye(3))
    np.testing.assert_allclose(pairs, losses.RankTripletLoss()(np.arange(3), np.eye(3)))


CASES = {
    "spearman": (losses.SpearmanLoss, lambda rng: rng.normal(size=(8, 1))),
    "spearman_items": (
        lambda **kw: losses.SpearmanLoss(axis="items", **kw),
        lambda rng: rng.normal(size=(8, 8)),
    ),
    "map": (losses.MeanAveragePrecisionLoss, lambda rng: rng.integers(0, 2, size=(8, 8))),
    "triplet": (losses.RankTripletLoss, lambda rng: np.arange(8)),
}


def labels_and_outputs(name, rng):
    width = 1 if name == "spearman" else 8
    return CASES[name][1](rng).astype(np.float32), rng.normal(size=(8, width))


@pytest.mark.once
@pytest.mark.parametrize("jit_compile", [None, False, True], ids=["eager", "graph", "xla"])
def test_triplets_of_no_examples(jit_compile):
    loss = losses.RankTripletLoss(reduction="none")
    batch = tf.zeros([0, 1], tf.int32), tf.zeros([0, 0])
    if jit_compile is not None:
        specs = [tf.TensorSpec([None, 1], tf.int32), tf.TensorSpec([None, None])]
        loss = tf.function(lambda *batch, f=loss: f(*batch), specs, jit_compile=jit_compile)
    assert loss(*batch).shape == (0,)


@pytest.mark.once
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_in_graphs_saved_and_differentiated(name, jit_compile, rng):
    loss = CASES[name][0](sorter=layers.LaplaceSorter(0.3), reduction="none")
    labels, outputs = labels_and_outputs(name, rng)
    direction = rng.normal(size=outputs.shape)

    def value_and_gradient(outputs):
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            value = tf.reduce_mean(loss.call(labels, outputs))
        return value, tape.gradient(value, outputs)

    value, gradient = value_and_gradient(tf.constant(outputs))
    compiled = tf.function(value_and_gradient, jit_compile=jit_compile)(tf.constant(outputs))
    np.testing.assert_allclose(compiled[0], value, rtol=1e-9)
    np.testing.assert_allclose(compiled[1], gradient, rtol=1e-6, atol=1e-9)
    around = [value_and_gradient(tf.constant(outputs + h * direction))[0] for h in (1e-6, -1e-6)]
    slope = (around[0] - around[1]) / 2e-6
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-5, atol=1e-8)
    again = losses.get(keras.utils.serialize_keras_object(loss))
    assert again.sorter.temperature == 0.3
    np.testing.assert_allclose(again.call(labels, outputs), loss.call(labels, outputs))
    assert losses.get(r4c._registry.snake_case(type(loss).__name__)).name == loss.name


def test_a_loaded_model_has_the_loss_of_its_learned_sorter(tmp_path, rng):
    features = rng.normal(size=(20, 3)).astype(np.float32)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", losses.SpearmanLoss(layers.SetSorter.pretrained()))
    expected = model.evaluate(features, features[:, :1], verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    found = loaded.evaluate(features, features[:, :1], verbose=0)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.once
def test_training_orders_what_mse_does_not(rng):
    """Labels in which few are huge: their order is a matter of ranks."""
    features = rng.normal(size=(256, 5)).astype(np.float32)
    signal = features @ np.array([1.0, -2.0, 0.5, 0, 1], np.float32)
    labels = np.exp(3 * signal)

    def spearman(loss):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.05), loss=loss)
        model.fit(features, labels, batch_size=64, epochs=40, verbose=0)
        return scipy.stats.spearmanr(labels, model.predict(features, verbose=0)[:, 0]).statistic

    by_ranks = spearman(losses.SpearmanLoss(layers.LaplaceSorter()))
    assert by_ranks > 0.97
    assert by_ranks > spearman("mse") + 0.05


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.SpearmanLoss(3), "`sorter` must be None or a sorter"),  # type: ignore[arg-type]
        (lambda: losses.SpearmanLoss(axis="rows"), "`axis` must be one of"),
        (lambda: losses.SpearmanLoss(alignment=-1), "`alignment` must be a finite number >= 0"),
        (lambda: losses.RankTripletLoss(margin=0), "`margin` must be a finite number > 0"),
        (lambda: losses.SpearmanLoss()(np.zeros(3), np.zeros((3, 2))), "the shape of `y_pred`"),
        (lambda: losses.RankTripletLoss()(np.zeros(3), np.zeros((3, 2))), "similarities"),
        (lambda: losses.SpearmanLoss()(np.zeros((3, 2, 2)), np.zeros((3, 2))), "`y_true` must"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_row_without_negatives_has_no_loss():
    loss = losses.RankTripletLoss(layers.LaplaceSorter(0.01), margin=1.5, reduction="none")
    np.testing.assert_array_equal(loss([0], [[3.0]]), [0.0])
    np.testing.assert_array_equal(loss([4, 4], np.eye(2)), [0.0, 0.0])


@pytest.mark.parametrize("make", [losses.SpearmanLoss, losses.MeanAveragePrecisionLoss])
def test_labels_that_are_not_finite_raise(make):
    labels, outputs = [1.0, np.nan, 3.0], [1.0, 2.0, 3.0]
    message = "`y_true` must hold finite numbers. Received:.*nan"
    with pytest.raises(ValueError, match=message):
        make()(labels, outputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.function(make())(tf.constant(labels), tf.constant(outputs))


@pytest.mark.parametrize("make", [losses.SpearmanLoss, losses.MeanAveragePrecisionLoss])
def test_labels_that_are_not_finite_are_nan_for_xla(make, as_for_xla):
    labels, outputs = tf.constant([1.0, np.inf, 3.0]), tf.constant([1.0, 2.0, 3.0])
    assert np.isnan(tf.function(make())(labels, outputs))


def test_masked_entries_do_not_count_in_the_alignment():
    loss = losses.MeanAveragePrecisionLoss(layers.LaplaceSorter(0.01), axis="items", alignment=1.0)
    expected = loss([[1.0, 0]], [[3.0, 1.0]])
    np.testing.assert_allclose(loss([[1.0, 0, -1, -1]], [[3.0, 1.0, 7, 7]]), expected, rtol=1e-6)
    # No gradient either, where such an output is no number.
    outputs = tf.constant([[3.0, 1.0, float("nan"), float("inf")]])
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        misalignment = loss.misalignment(tf.constant([[1.0, 0, -1, -1]]), outputs)
    np.testing.assert_allclose(tape.gradient(misalignment, outputs), [[0.5, 0.5, 0, 0]])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_large_labels_keep_their_order(dtype):
    labels = np.array([1_700_000_000, 1_700_000_001], dtype)
    loss = losses.SpearmanLoss(layers.LaplaceSorter(0.01))
    np.testing.assert_allclose(loss(labels, np.float32([1, 0])), 0.25, rtol=1e-6)


@pytest.mark.once
def test_shapes_that_only_running_tells():
    signature = [tf.TensorSpec([None]), tf.TensorSpec([None, None])]
    for make in (losses.SpearmanLoss, losses.MeanAveragePrecisionLoss, losses.RankTripletLoss):
        compiled = tf.function(make(), input_signature=signature)
        size = 2 if make is losses.RankTripletLoss else 3
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="`y_true` must have|y_true. a number for each"
        ):
            compiled(np.arange(size, dtype=np.float32), np.eye(3, dtype=np.float32))


@pytest.mark.once
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_batches_whose_size_only_running_tells(name, jit_compile, rng):
    """As in `fit` where the last batch is smaller. Weights of one are not those of all."""
    loss, batch = CASES[name][0](reduction="none"), labels_and_outputs(name, rng)
    batch = [tf.constant(x, tf.float64) for x in batch]
    square = name == "triplet"
    shapes = [[None] * x.shape.rank if square else [None, *x.shape[1:]] for x in batch]
    specs = [tf.TensorSpec(shape, tf.float64) for shape in [*shapes, [None]]]

    def value_and_gradient(labels, outputs, weights):
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            value = loss(labels, outputs, weights)
        return value, tape.gradient(value, outputs)

    compiled = tf.function(value_and_gradient, specs, jit_compile=jit_compile)
    for size in (8, 5):
        part = [x[:size, :size] if square and x.shape.rank == 2 else x[:size] for x in batch]
        weights = tf.range(1, size + 1, dtype=tf.float64)
        for found, expected in zip(
            compiled(*part, weights), value_and_gradient(*part, weights), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(tf.errors.InvalidArgumentError, match="sample_weight.{1,2}must"):
        compiled(*batch, tf.ones(1, tf.float64))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(8, 8), (1, 8), (3,), (3, 1), (8, 1, 1)])
def test_weights_of_another_shape_raise(name, shape, rng):
    with pytest.raises(ValueError, match="`sample_weight` must"):
        CASES[name][0]()(*labels_and_outputs(name, rng), sample_weight=np.ones(shape))


@pytest.mark.parametrize("name", CASES)
def test_weights_of_examples(name, rng):
    loss, batch = CASES[name][0](reduction="none"), labels_and_outputs(name, rng)
    weights = np.arange(8.0)
    for form in (weights, weights[:, np.newaxis]):
        np.testing.assert_allclose(loss(*batch, sample_weight=form), loss(*batch) * weights)
    np.testing.assert_allclose(loss(*batch, sample_weight=2.0), 2 * loss(*batch))


@pytest.mark.once
@pytest.mark.parametrize("sorter", [layers.SigmoidSorter, layers.LaplaceSorter])
def test_batches_of_any_size_of_one_output(sorter, rng):
    loss = losses.SpearmanLoss(sorter())
    spec = tf.TensorSpec([None, 1])
    compute = tf.function(loss, input_signature=[spec, spec])
    for size in (5, 9):
        labels, outputs = rng.normal(size=(2, size, 1)).astype(np.float32)
        np.testing.assert_allclose(compute(labels, outputs), loss(labels, outputs), rtol=1e-5)
