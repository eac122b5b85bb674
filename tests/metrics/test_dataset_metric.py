"""What the metrics of whole columns of a dataset share."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c

from ..contract.tables import DATASET_METRICS
from .results import filled

both = pytest.mark.parametrize("make", DATASET_METRICS.values(), ids=DATASET_METRICS)


@pytest.mark.parametrize("name", DATASET_METRICS)
def test_weights_that_are_nan_show(name, columns):
    labels, scores = columns
    weights = np.ones(60)
    weights[7] = np.nan
    assert np.isnan(filled(DATASET_METRICS[name], labels, scores, weights).result())


@pytest.mark.parametrize("shape", [None, [None, None], [None, 1], [None], []])
def test_weights_whose_shape_only_running_tells(shape, columns):
    labels, scores = columns
    weights = np.arange(60, dtype=np.float32) if shape == [None] else np.full((60, 1), 2.0)
    weights = np.float32(2) if shape == [] else weights.astype(np.float32)
    metric, expected = (
        DATASET_METRICS["mean_average_precision"](),
        DATASET_METRICS["mean_average_precision"](),
    )
    specs = [tf.TensorSpec([None, 4]), tf.TensorSpec([None, 4]), tf.TensorSpec(shape)]
    # Keras 2 gives an operation, which no function returns.
    update = tf.function(lambda *batch: [metric.update_state(*batch), None][1], specs)
    update(labels, scores, weights)
    expected.update_state(labels, scores, weights)
    np.testing.assert_allclose(metric.result(), expected.result())
    if shape in (None, [None, None]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="`sample_weight` must"):
            update(labels, scores, np.ones((60, 2), np.float32))


@both
def test_batches_reset_merge_and_config(make, columns):
    labels, scores = columns
    whole = float(filled(make, labels, scores, parts=1).result())
    metric = filled(make, labels, scores, parts=7, max_examples=60)
    assert float(metric.result()) == whole
    metric.reset_state()
    assert float(metric.result()) == 0
    metric.update_state(labels[:0], scores[:0])
    others = [filled(make, labels[rows], scores[rows]) for rows in (slice(25), slice(25, 60))]
    metric.merge_state(others)
    np.testing.assert_allclose(metric.result(), whole, rtol=1e-14)
    copy = r4c.metrics.get(keras.utils.serialize_keras_object(make(name="mine", max_examples=7)))
    assert copy.name == "mine" and copy.max_examples == 7 and type(copy) is type(metric)


@both
def test_too_many_examples(make, columns):
    labels, scores = columns
    message = "`max_examples`=50 must be at least the number of examples. Received:.*60"
    with pytest.raises(ValueError, match=message):
        filled(make, labels, scores, max_examples=50)
    metric = make(max_examples=50)
    update = tf.function(lambda y, s: metric.update_state(y, s) and None)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        update(labels, scores)
    assert int(metric.count) == 0


@both
def test_too_many_examples_are_nan_for_xla(make, columns, as_for_xla):
    labels, scores = columns
    metric = make(max_examples=50)
    tf.function(lambda y, s: metric.update_state(y, s) and None)(labels, scores)
    assert np.isnan(metric.result())


@both
def test_shapes_and_strategies(make, columns, two_devices):
    labels, scores = columns
    with pytest.raises(ValueError, match=r"`y_pred` must have the shape \[batch, 4\]"):
        make().update_state(labels, scores[:, :2])
    with pytest.raises(ValueError, match="`max_examples` must be a positive integer"):
        make(max_examples=0)
    with two_devices.scope(), pytest.raises(ValueError, match="replicas cannot share"):
        make()


@pytest.mark.keras2
@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_keras(columns, jit_compile):
    labels, scores = columns
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(4)])
    metrics = [make(max_examples=60) for make in DATASET_METRICS.values()]
    model.compile("sgd", "mse", metrics=metrics, jit_compile=jit_compile)
    logs = model.evaluate(scores, labels, batch_size=30, verbose=0, return_dict=True)
    predicted = model.predict(scores, verbose=0)
    for name, make in DATASET_METRICS.items():
        expected = filled(make, labels, predicted).result()
        np.testing.assert_allclose(logs[name], expected, rtol=1e-5)
