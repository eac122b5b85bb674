"""A sorter that is trained, saved and loaded with the model of its loss."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, losses

pytestmark = pytest.mark.keras2


@keras.utils.register_keras_serializable()
class ScaledSorter(layers.Sorter):
    """Laplace's ranks with a weight."""

    def build(self, input_shape):
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones", dtype="float32")
        self.built = True

    def soft_ranks(self, scores, mask):
        above = tf.sigmoid((scores[:, tf.newaxis] - scores[..., tf.newaxis]) * self.scale)
        return 0.5 + tf.reduce_sum(above, axis=-1)


def build(sorter):
    sorter.build((None, None))
    return keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(1), layers.Companion(sorter)]
    )


@pytest.mark.parametrize("trainable", [True, False])
def test_trained_saved_and_resumed_with_the_model(trainable, rng, tmp_path):
    features, labels = rng.normal(size=(32, 3)), rng.normal(size=32)
    sorter = ScaledSorter(trainable=trainable)
    model = build(sorter)
    model.compile(keras.optimizers.Adam(0.1), loss=losses.SpearmanLoss(sorter))
    model.fit(features, labels, epochs=2, verbose=0)
    assert (abs(float(np.array(sorter.scale)) - 1) > 1e-3) == trainable
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    sorter = loaded.layers[-1].layer
    np.testing.assert_array_equal(loaded.get_weights()[-1], model.get_weights()[-1])
    loaded.compile(loaded.optimizer, loss=losses.SpearmanLoss(sorter))
    model.fit(features, labels, epochs=1, verbose=0, shuffle=False)
    loaded.fit(features, labels, epochs=1, verbose=0, shuffle=False)
    for ours, theirs in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_layer_is_checked():
    with pytest.raises(ValueError, match="`layer` must be a Keras layer"):
        layers.Companion(3)
