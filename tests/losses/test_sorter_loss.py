"""What holds for every loss on ranks of outputs."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, losses

from ..contract.tables import SORTER_LOSSES


def test_alignment(rng):
    labels, outputs = rng.normal(size=(2, 10, 1)).astype(np.float32)
    plain = losses.SpearmanLoss()(labels, outputs)
    variable = tf.Variable(0.5)
    for alignment in (0.5, variable):
        value = losses.SpearmanLoss(alignment=alignment)(labels, outputs)
        np.testing.assert_allclose(
            value - plain, 0.5 * np.mean(np.abs(outputs - labels)), rtol=1e-5
        )
    loss = losses.SpearmanLoss(alignment=variable)
    compiled = tf.function(loss)
    compiled(labels, outputs)
    variable.assign(0.0)
    copy = losses.get(keras.utils.serialize_keras_object(loss))
    np.testing.assert_allclose(copy(labels, outputs), plain, rtol=1e-5)
    np.testing.assert_allclose(compiled(labels, outputs), plain, rtol=1e-5)
    pairs = losses.RankTripletLoss(alignment=1.0)(np.arange(3), np.eye(3))
    np.testing.assert_allclose(pairs, losses.RankTripletLoss()(np.arange(3), np.eye(3)))


def labels_and_outputs(case, rng):
    return case.labels(rng).astype(np.float32), rng.normal(size=(8, case.width))


@pytest.mark.parametrize("case", SORTER_LOSSES, ids=lambda case: case.name)
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_in_graphs_saved_and_differentiated(case, jit_compile, rng):
    loss = case.make(sorter=layers.LaplaceSorter(0.3), reduction="none")
    labels, outputs = labels_and_outputs(case, rng)
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


def test_a_loaded_model_has_the_loss_of_its_learned_sorter(tmp_path, rng):
    features = rng.normal(size=(20, 3)).astype(np.float32)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", losses.SpearmanLoss(layers.SetSorter.pretrained()))
    expected = model.evaluate(features, features[:, :1], verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    found = loaded.evaluate(features, features[:, :1], verbose=0)
    assert found == pytest.approx(expected, rel=1e-6)


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


def test_shapes_that_only_running_tells():
    signature = [tf.TensorSpec([None]), tf.TensorSpec([None, None])]
    for make in (losses.SpearmanLoss, losses.MeanAveragePrecisionLoss, losses.RankTripletLoss):
        compiled = tf.function(make(), input_signature=signature)
        size = 2 if make is losses.RankTripletLoss else 3
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="`y_true` must have|y_true. a number for each"
        ):
            compiled(np.arange(size, dtype=np.float32), np.eye(3, dtype=np.float32))


@pytest.mark.parametrize("case", SORTER_LOSSES, ids=lambda case: case.name)
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_batches_whose_size_only_running_tells(case, jit_compile, rng):
    """As in `fit` where the last batch is smaller. Weights of one are not those of all."""
    loss, batch = case.make(reduction="none"), labels_and_outputs(case, rng)
    batch = [tf.constant(x, tf.float64) for x in batch]
    square = case.name == "rank_triplet"
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


@pytest.mark.parametrize("case", SORTER_LOSSES, ids=lambda case: case.name)
@pytest.mark.parametrize("shape", [(8, 8), (1, 8), (3,), (3, 1), (8, 1, 1)])
def test_weights_of_another_shape_raise(case, shape, rng):
    with pytest.raises(ValueError, match="`sample_weight` must"):
        case.make()(*labels_and_outputs(case, rng), sample_weight=np.ones(shape))


@pytest.mark.parametrize("case", SORTER_LOSSES, ids=lambda case: case.name)
def test_weights_of_examples(case, rng):
    loss, batch = case.make(reduction="none"), labels_and_outputs(case, rng)
    weights = np.arange(8.0)
    for form in (weights, weights[:, np.newaxis]):
        np.testing.assert_allclose(loss(*batch, sample_weight=form), loss(*batch) * weights)
    np.testing.assert_allclose(loss(*batch, sample_weight=2.0), 2 * loss(*batch))
