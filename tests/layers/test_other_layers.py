"""SparseDense, Companion, and what layers make of precisions and integers that others give them."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, losses

from ..rounding import assert_all_close

SCORES = tf.constant([[1e6, 1.0001, 2.0]])
IDS = tf.constant([1, 2, 3])
FIRST = tf.constant([0])


# A layer, and the highest score that it gives back as it is.
LAYERS = {
    "companion": lambda scores: layers.Companion(layers.LaplaceSorter())(scores),
    "exclude_items": lambda scores: layers.ExcludeItems()([scores, tf.constant([[2]])]),
    "remove_accidental_hits": lambda scores: layers.RemoveAccidentalHits()(scores, FIRST, IDS),
    "hard_negative_mining": lambda scores: layers.HardNegativeMining(2)(scores, FIRST)[0],
    "sampling_probability_correction": lambda scores: layers.SamplingProbabilityCorrection()(
        scores, FIRST, tf.ones([3])
    ),
}


@pytest.fixture
def mixed_float16():
    keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    keras.mixed_precision.set_global_policy("float32")


@pytest.mark.keras2
def test_mixed_precision_rounds_nothing(mixed_float16):
    for make in LAYERS.values():
        result = make(SCORES)
        assert result.dtype == tf.float32
        assert np.float32(1e6) in result.numpy() and np.float32(1.0001) in result.numpy()
    memory = layers.CrossBatchMemory(1)
    memory(tf.constant([[1e6, 1.0001]]), tf.constant([7]), training=True)
    encodings, _, _ = memory(tf.zeros([1, 2]), tf.constant([1]))
    np.testing.assert_array_equal(encodings, np.float32([[1e6, 1.0001]]))
    counts = tf.constant([1.0, 1e-9])
    corrected = layers.SamplingProbabilityCorrection()(tf.constant([[3.0, 1.0]]), FIRST, counts)
    np.testing.assert_allclose(corrected, [[3.0, 1 - np.log(1e-9)]], rtol=1e-6)


def test_integers():
    integers = tf.constant([[30, 10, 20]])
    for name in set(LAYERS) - {"companion"}:
        expected = LAYERS[name](tf.cast(integers, tf.float32))
        np.testing.assert_array_equal(LAYERS[name](integers), expected)
    head = layers.DotProductHead(3)
    np.testing.assert_array_equal(head(tf.ones([2, 4], tf.int32)), head(tf.ones([2, 4])))


@pytest.mark.parametrize("name", ["bilinear", "concat", "cosine", "latent_cross"])
def test_a_dtype_is_that_of_all_parts_of_a_head(name):
    head = layers.Head(3, name, dtype="float64")
    encodings = tf.constant([[1.0, 2.0]], tf.float64)
    with tf.GradientTape() as tape:
        scores = head(encodings)
    found = [scores, *tape.gradient(scores, head.trainable_weights), tf.function(head)(encodings)]
    assert {tf.as_dtype(x.dtype) for x in (*found, *head.trainable_weights)} == {tf.float64}
    np.testing.assert_allclose(found[-1], scores)


def test_a_companion_passes_a_mask_on():
    ids, companion = tf.constant([[1, 2, 0, 0]]), layers.Companion(layers.LaplaceSorter())
    embedding = keras.layers.Embedding(3, 2, mask_zero=True)
    pooling = keras.layers.GlobalAveragePooling1D()
    expected = keras.Sequential([embedding, pooling])(ids)
    model = keras.Sequential([embedding, companion, pooling])
    np.testing.assert_array_equal(model(ids), expected)


def test_a_sparse_layer_has_the_value_and_gradient_of_a_dense_one(rng):
    x = rng.normal(size=(4, 9)).astype(np.float32) * (rng.random((4, 9)) < 0.4)
    x[2] = 0
    layer = layers.SparseDense(3)
    with tf.GradientTape() as tape:
        outputs = layer(tf.sparse.from_dense(x))
        upstream = rng.normal(size=(4, 3)).astype(np.float32)
        total = tf.reduce_sum(outputs * upstream)
    kernel, bias = (np.array(w, np.float64) for w in layer.trainable_variables)
    np.testing.assert_allclose(outputs, x @ kernel + bias, rtol=1e-5, atol=1e-6)
    of_kernel, of_bias = tape.gradient(total, layer.trainable_variables)
    assert set(of_kernel.indices.numpy()) == set(np.flatnonzero(x.any(axis=0)))
    dense = tf.convert_to_tensor(of_kernel)
    np.testing.assert_allclose(dense, x.T @ upstream, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_bias, upstream.sum(axis=0), rtol=1e-5, atol=1e-6)
    assert not layer.supports_jit


@keras.utils.register_keras_serializable()
class ScaledSorter(layers.Sorter):
    """Laplace's ranks with a weight."""

    def build(self, input_shape):
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones", dtype="float32")
        self.built = True

    def soft_ranks(self, scores, mask):
        above = tf.sigmoid((scores[:, tf.newaxis] - scores[..., tf.newaxis]) * self.scale)
        return 0.5 + tf.reduce_sum(above, axis=-1)


@pytest.mark.keras2
@pytest.mark.parametrize("trainable", [True, False])
def test_a_companion_is_trained_saved_and_resumed_with_the_model(trainable, rng, tmp_path):
    features, labels = rng.normal(size=(32, 3)), rng.normal(size=32)
    sorter = ScaledSorter(trainable=trainable)
    sorter.build((None, None))
    of_model = keras.layers.Input((3,)), keras.layers.Dense(1), layers.Companion(sorter)
    model = keras.Sequential(of_model)
    model.compile(keras.optimizers.Adam(0.1), loss=losses.SpearmanLoss(sorter))
    model.fit(features, labels, epochs=2, verbose=0)
    assert (abs(float(np.array(sorter.scale)) - 1) > 1e-3) == trainable
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.get_weights()[-1], model.get_weights()[-1])
    loaded.compile(loaded.optimizer, loss=losses.SpearmanLoss(loaded.layers[-1].layer))
    for each in (model, loaded):
        each.fit(features, labels, epochs=1, verbose=0, shuffle=False)
    assert_all_close(loaded.get_weights(), model.get_weights(), 1e-5, 1e-6)
