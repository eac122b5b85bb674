"""Models whose objects hold other objects, in every format that Keras writes."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras, layers, losses, metrics, ops

pytestmark = pytest.mark.keras2

CLASSES, FEATURES = 5, 4


def encoder():
    return keras.Sequential([keras.layers.Input((CLASSES,)), keras.layers.Dense(FEATURES)])


def weighted():
    of_keras = keras.losses.CategoricalCrossentropy(from_logits=True)
    return losses.WeightedSumLoss([losses.RankmaxLoss(), of_keras], [1.0, 2.0])


# What is compiled, or the last layer.
OBJECTS = {
    "weights of ranks": lambda: losses.WARPLoss(ops.TopKWeights(2)),
    "variable": lambda: losses.SoftmaxLoss(tf.Variable(2.0)),
    "sorter": lambda: losses.ApproxNDCGLoss(ranker=layers.LaplaceSorter()),
    "weighted sum": weighted,
    "metric": lambda: metrics.MacroAverage(metrics.NDCG(3), CLASSES),
    "probabilities": lambda: metrics.ExpectedCalibrationError(probabilities=layers.Probabilities()),
    "encoded classes": lambda: layers.DotProductHead(
        layers.EncodedClasses(np.eye(CLASSES, dtype=np.float32), encoder())
    ),
    "interaction": lambda: layers.Head(CLASSES, layers.LatentCrossInteraction()),
    "prediction sets": lambda: layers.PredictionSets(0.1, "lac", layers.Probabilities(2.0)),
}


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize("suffix", [".keras", ".h5"] + [""] * (not _keras.KERAS_3))
@pytest.mark.parametrize("name", OBJECTS)
def test_saved_and_loaded(name, suffix, rng, tmp_path):
    held = OBJECTS[name]()
    model = keras.Sequential([keras.layers.Input((FEATURES,))])
    if not isinstance(held, layers.Head):
        model.add(keras.layers.Dense(CLASSES))
    is_metric = isinstance(held, keras.metrics.Metric)  # In Keras 2 it is a layer too.
    if isinstance(held, keras.layers.Layer) and not is_metric:
        model.add(held)
    trains = name != "prediction sets"
    if trains:
        loss = held if isinstance(held, keras.losses.Loss) else losses.SoftmaxLoss()
        model.compile("sgd", loss, metrics=[held] if is_metric else None, run_eagerly=True)
    features = rng.normal(size=(6, FEATURES)).astype(np.float32)
    labels = tf.one_hot([0, 1, 2, 3, 4, 0], CLASSES)
    path = tmp_path / f"model{suffix}"
    model.save(path)
    loaded = keras.models.load_model(path)
    np.testing.assert_array_equal(loaded(features), model(features))
    if trains:
        loaded.run_eagerly = True
        found, expected = (np.ravel(m.test_on_batch(features, labels)) for m in (loaded, model))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
