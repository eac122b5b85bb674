"""The probabilities that a loss fits."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import losses

LOSSES = {
    "softmax": losses.SoftmaxLoss(temperature=0.5),
    "variable": losses.SoftmaxLoss(tf.Variable(2.0)),
    "unique": losses.UniqueSoftmaxLoss(temperature=1.5),
    "list_mle": losses.ListMLELoss(temperature=0.7),
    "sparsemax": losses.SparsemaxLoss(),
    "fenchel_young": losses.FenchelYoungLoss("euclidean", alpha=0.4),
    "entropy": losses.FenchelYoungLoss("entropy", alpha=3.0),
    "squared": losses.MeanSquaredLoss(positive_target=4.0),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_fits_its_probabilities(name, rng):
    """Labels drawn from the probabilities of some scores leave these where they are."""
    loss = LOSSES[name]
    scores = rng.normal(size=(8, 5))
    if name == "squared":
        # Scores that are probabilities; others it draws to these.
        scores = 4 * rng.dirichlet(np.ones(5), size=8)
    p = loss.probabilities(scores.astype("float32")).numpy()
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-6)
    assert np.ptp(p) > 0.2
    slope = np.zeros_like(scores)
    for label in range(5):
        with tf.GradientTape() as tape:
            x = tf.constant(scores)
            tape.watch(x)
            value = tf.reduce_sum(loss.call([label] * 8, x))
        slope += p[:, label : label + 1] * tape.gradient(value, x)
    np.testing.assert_allclose(slope, 0, atol=2e-6)


def test_a_variable_temperature_is_that_of_now():
    temperature = tf.Variable(4.0)
    loss = losses.SoftmaxLoss(temperature)
    assert loss.probabilities.temperature == 4
    temperature.assign(2.0)
    assert loss.probabilities.temperature == 2


@pytest.mark.parametrize(
    "loss",
    [
        losses.RankmaxLoss(),
        losses.ApproxNDCGLoss(),
        losses.PairwiseLogisticLoss(),
        losses.FenchelYoungLoss(k=2),
        losses.FenchelYoungLoss(alpha="adaptive"),
        losses.MeanSquaredLoss(positive_weight=15.0),
        losses.SpearmanLoss(),
    ],
    ids=lambda loss: loss.name,
)
def test_other_losses_have_none(loss):
    assert getattr(loss, "probabilities", None) is None


def test_of_a_compiled_model():
    model = r4c.layers.DotProductHead(3)
    model = keras.Sequential([keras.layers.Input((4,)), model])
    model.compile("sgd", losses.SoftmaxLoss(2.0))
    assert model.loss.probabilities.temperature == 2
