import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from examples import metric_as_loss as example
from rank4class_tf import ops

LOSSES = [example.ApproxAPLoss, lambda **kw: example.ApproxRecallLoss(k=2, **kw)]


def test_trains_both():
    results = example.main(["--epochs", "3"])
    for result in results.values():
        assert result["recall_at_1"] > 0.5  # Chance is 0.1.


def test_average_precision_with_sharp_ranks_is_average_precision():
    scores = np.array([[40.0, 30.0, 20.0, 10.0]])
    loss = float(example.ApproxAPLoss()(np.array([[1, 3]]), scores))
    assert loss == pytest.approx(-(1 / 2 + 2 / 4) / 2, rel=1e-6)


@pytest.mark.parametrize("make", LOSSES)
def test_has_a_gradient_and_serializes(make, rng):
    scores = tf.constant(rng.normal(size=(4, 7)), tf.float32)
    loss = make()
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(np.array([[1, 2], [3, -1], [0, 6], [5, 4]]), scores)
    gradient = tape.gradient(value, scores)
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-3
    copy = keras.utils.deserialize_keras_object(keras.utils.serialize_keras_object(loss))
    assert copy.get_config() == loss.get_config()


def test_recall_with_a_soft_cutoff():
    scores = np.array([[40.0, 30.0, 20.0]])
    value = float(example.ApproxRecallLoss(k=2)(np.array([2]), scores))
    assert value == pytest.approx(-1 / (1 + np.exp(3 - 2.5)), rel=1e-5)
    assert ops.expected_ranks(scores, [[2]]) == 3
