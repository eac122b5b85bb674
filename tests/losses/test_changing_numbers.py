"""Numbers of a loss that are variables, which a callback changes: in a graph, and saved."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import losses
from rank4class_tf.losses import SoftmaxLoss


@pytest.mark.keras2
def test_saved_with_the_model(rng, tmp_path):
    temperature = tf.Variable(4.0)
    loss = SoftmaxLoss(temperature, label_format="ids")
    copy = losses.get(keras.utils.serialize_keras_object(loss))
    assert copy.get_config() == loss.get_config()
    assert loss.probabilities.temperature == 4
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(5)])
    model.compile(keras.optimizers.SGD(0.1), loss=loss)
    temperature.assign(2.0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").loss
    assert loaded.temperature == loss.probabilities.temperature == 2.0
    scores, ids = rng.normal(size=(4, 5)), rng.integers(0, 5, 4)
    np.testing.assert_allclose(loaded(ids, scores), SoftmaxLoss(2.0)(ids, scores))


@pytest.mark.parametrize(
    "loss",
    [
        losses.SoftmaxLoss,
        losses.PairwiseLogisticLoss,
        losses.ApproxNDCGLoss,
        losses.ApproxMRRLoss,
        lambda **kw: losses.GumbelApproxNDCGLoss(seed=1, **kw),
    ],
)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_every_temperature_may_change(loss, jit_compile, rng):
    """A graph reads the variable in each step, with few and with many positives."""
    scores = tf.constant(rng.normal(size=(3, 300)), tf.float32)
    labels = (rng.uniform(size=(3, 300)) < 0.3).astype(np.float32)
    variable = tf.Variable(2.0)
    changing = loss(temperature=variable, max_positives=300)
    function = tf.function(changing, jit_compile=jit_compile)
    for number in (2.0, 0.5):
        variable.assign(number)
        expected = loss(temperature=number)(labels, scores)
        np.testing.assert_allclose(function(labels, scores), expected, rtol=1e-5)
    assert type(changing).from_config(changing.get_config()).get_config()
