"""Serving layers, SparseDense, Companion; how layers take precisions and integers."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special
from tensorflow import keras

from rank4class_tf import layers, losses
from tests.losses.test_formulas import Steep
from tests.ops import projections

from ..rounding import assert_all_close

NAMES = ["cat", "dog", "eel", "fox", "gnu"]


@pytest.fixture
def scores(normal):
    return normal(7, 5)


def end(layer, scores):
    """A functional model that ends in the layer, over scores as they are."""
    inputs = keras.Input(scores.shape[1:])
    return keras.Model(inputs, layer(inputs))


def test_probabilities(scores, mixed_precision):
    of_float32 = tf.constant(scores)
    softmax = layers.Probabilities(0.3)
    expected = special.softmax(scores.astype("float64") / 0.3, axis=1)
    assert_allclose(softmax(of_float32), expected, rtol=2e-6)
    euclidean = layers.Probabilities(2.0, "euclidean")
    expected = [projections.euclidean(row, 1, 0.5) for row in scores.astype("float64")]
    assert_allclose(euclidean(of_float32), expected, atol=1e-6)
    assert softmax(tf.cast(scores, tf.bfloat16)).dtype == tf.float32
    scores[:, 2] = -np.inf
    for layer in (softmax, euclidean):
        p = layer(tf.constant(scores)).numpy()
        assert (p[:, 2] == 0).all()
        assert_allclose(p.sum(1), 1, rtol=1e-6)


def sets_in_plain_python(p, threshold, method):
    mask = np.zeros(p.shape, bool)
    for row, of_row in zip(p, mask, strict=True):
        for i, x in enumerate(row):
            value = x if method == "lac" else 1 - row[row > x].sum()
            of_row[i] = value >= threshold or x == row.max()
    return mask


@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize("threshold", [0.0, 0.1234, 0.4321, 1.0])
def test_sets(method, threshold, scores):
    layer = layers.PredictionSets(threshold, method, layers.Probabilities(0.7))
    p = special.softmax(scores.astype("float64") / 0.7, axis=1)
    expected = sets_in_plain_python(p, threshold, method)
    for compute in (layer, tf.function(layer, jit_compile=True)):
        assert_array_equal(compute(tf.constant(scores)), expected)


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_sets_at_positions(method, normal, in_mode):
    scores = normal(2, 3, 5)
    sets = layers.PredictionSets(0.3, method)
    expected = sets(scores.reshape(6, 5)).numpy().reshape(2, 3, 5)
    assert_array_equal(in_mode(sets)(scores), expected)
    assert 0 < expected.sum() < expected.size


def test_mass_not_above(rng):
    """What the method "aps" asks for."""
    mass = layers.PredictionSets(0.5, "aps", probabilities=tf.identity).conformity
    p = rng.dirichlet(np.ones(9), size=20)
    # Exact sums with ties.
    p[0] = [
        0.25,
        0.25,
        0.125,
        0.125,
        0.0625,
        0.0625,
        0.125,
        0.0,
        0.0,
    ]
    expected = [[(row * (row <= x)).sum() for x in row] for row in p]
    assert_allclose(mass(tf.constant(p)), expected, rtol=1e-12)
    p = tf.constant([[1.0, 1e-20, 3e-30, 1e-30]])  # Small ones keep their digits.
    assert_allclose(mass(p)[0, 1:], [1e-20, 4e-30, 1e-30], rtol=1e-6)


def test_top_classes(scores):
    sets = layers.PredictionSets(0.1, "lac")
    layer = layers.TopClasses(3, NAMES, layers.Probabilities(0.5), sets)
    result = end(layer, scores).predict(scores, verbose=0)
    assert set(result) == {
        "scores",
        "class_ids",
        "class_names",
        "probabilities",
        "set_sizes",
    }
    order = np.argsort(-scores, axis=1)[:, :3]
    assert_array_equal(result["class_ids"], order)
    assert_array_equal(result["scores"], np.take_along_axis(scores, order, 1))
    assert result["class_names"].tolist() == [
        [NAMES[i].encode() for i in row] for row in order
    ]
    p = special.softmax(2 * scores.astype("float64"), axis=1)
    assert_allclose(result["probabilities"], np.take_along_axis(p, order, 1), rtol=1e-5)
    p = special.softmax(scores.astype("float64"), axis=1)
    assert_array_equal(result["set_sizes"], (p >= 0.1).sum(1))


@pytest.mark.parametrize(
    "make", [tf.constant, np.array, iter, lambda x: [tf.constant(x[0]), b"dog"]]
)
def test_names_of_many_types(make):
    layer = layers.TopClasses(1, make(["cat", "dog"]))
    assert layer.class_names == ["cat", "dog"] and not layer.supports_jit
    best = layer(tf.constant([[1.0, 2.0]]))
    assert list(best) == ["scores", "class_ids", "class_names"]  # What is asked for.
    assert best["class_names"].numpy() == [[b"dog"]]


@pytest.mark.parametrize("regularizer", ["euclidean", Steep(0.5)])
def test_a_model_is_saved_with_all_of_them(regularizer, scores, reloaded):
    probabilities = layers.Probabilities(0.5, regularizer)
    sets = layers.PredictionSets(0.25, "aps", layers.Probabilities(3.0))
    model = end(layers.TopClasses(2, NAMES, probabilities, sets), scores)
    found = reloaded(model)(scores)
    expected = model(scores)
    for name, value in expected.items():
        assert_array_equal(found[name], value)


def test_where_classes_are_excluded_there_is_no_name():
    scores = layers.ExcludeItems()(
        [tf.constant([[1.0, 2.0, 3.0]]), tf.constant([[2, 0]])]
    )
    best = layers.TopClasses(3, ["a", "b", "c"], layers.Probabilities())(scores)
    assert_array_equal(best["class_ids"], [[1, -1, -1]])
    assert_array_equal(best["class_names"], [[b"b", b"", b""]])
    assert_array_equal(best["probabilities"], [[1.0, 0.0, 0.0]])
    assert 0 in layers.TopClasses(2)(tf.constant([[np.nan, 1.0]]))["class_ids"].numpy()


IDS = tf.constant([1, 2, 3])
FIRST = tf.constant([0])
# A layer, and the highest score that it gives back as it is.
LAYERS = {
    "companion": lambda scores: layers.Companion(layers.LaplaceSorter())(scores),
    "exclude_items": lambda scores: layers.ExcludeItems()([scores, tf.constant([[2]])]),
    "remove_accidental_hits": lambda scores: layers.RemoveAccidentalHits()(
        scores, FIRST, IDS
    ),
    "hard_negative_mining": lambda scores: layers.HardNegativeMining(2)(scores, FIRST)[
        0
    ],
    "sampling_probability_correction": lambda scores: (
        layers.SamplingProbabilityCorrection()(scores, FIRST, tf.ones([3]))
    ),
}


@pytest.mark.keras2
def test_mixed_precision_rounds_nothing(mixed_precision):
    for make in LAYERS.values():
        result = make(tf.constant([[1e6, 1.0001, 2.0]]))
        assert result.dtype == tf.float32
        assert (
            np.float32(1e6) in result.numpy() and np.float32(1.0001) in result.numpy()
        )
    memory = layers.CrossBatchMemory(1)
    memory(tf.constant([[1e6, 1.0001]]), tf.constant([7]), training=True)
    encodings, _, _ = memory(tf.zeros([1, 2]), tf.constant([1]))
    assert_array_equal(encodings, np.float32([[1e6, 1.0001]]))
    counts = tf.constant([1.0, 1e-9])
    corrected = layers.SamplingProbabilityCorrection()(
        tf.constant([[3.0, 1.0]]), FIRST, counts
    )
    assert_allclose(corrected, [[3.0, 1 - np.log(1e-9)]], rtol=1e-6)


def test_integers():
    integers = tf.constant([[30, 10, 20]])
    for name in set(LAYERS) - {"companion"}:
        expected = LAYERS[name](tf.cast(integers, tf.float32))
        assert_array_equal(LAYERS[name](integers), expected)
    head = layers.DotProductHead(3)
    assert_array_equal(head(tf.ones([2, 4], tf.int32)), head(tf.ones([2, 4])))


@pytest.mark.parametrize("name", ["bilinear", "concat", "cosine", "latent_cross"])
def test_a_dtype_is_that_of_all_parts_of_a_head(name):
    head = layers.Head(3, name, dtype="float64")
    encodings = tf.constant([[1.0, 2.0]], tf.float64)
    with tf.GradientTape() as tape:
        scores = head(encodings)
    found = [
        scores,
        *tape.gradient(scores, head.trainable_weights),
        tf.function(head)(encodings),
    ]
    assert {tf.as_dtype(x.dtype) for x in (*found, *head.trainable_weights)} == {
        tf.float64
    }
    assert_allclose(found[-1], scores)


def test_a_companion_passes_a_mask_on():
    ids = tf.constant([[1, 2, 0, 0]])
    companion = layers.Companion(layers.LaplaceSorter())
    embedding = keras.layers.Embedding(3, 2, mask_zero=True)
    pooling = keras.layers.GlobalAveragePooling1D()
    expected = keras.Sequential([embedding, pooling])(ids)
    assert_array_equal(keras.Sequential([embedding, companion, pooling])(ids), expected)


def test_a_sparse_layer_has_the_value_and_gradient_of_a_dense_one(rng, normal):
    x = normal(4, 9) * (rng.random((4, 9)) < 0.4)
    x[2] = 0
    layer = layers.SparseDense(3)
    with tf.GradientTape() as tape:
        outputs = layer(tf.sparse.from_dense(x))
        upstream = normal(4, 3)
        total = tf.reduce_sum(outputs * upstream)
    kernel, bias = (np.array(w, np.float64) for w in layer.trainable_variables)
    assert_allclose(outputs, x @ kernel + bias, rtol=1e-5, atol=1e-6)
    of_kernel, of_bias = tape.gradient(total, layer.trainable_variables)
    assert set(of_kernel.indices.numpy()) == set(np.flatnonzero(x.any(axis=0)))
    dense = tf.convert_to_tensor(of_kernel)
    assert_allclose(dense, x.T @ upstream, rtol=1e-5, atol=1e-6)
    assert_allclose(of_bias, upstream.sum(axis=0), rtol=1e-5, atol=1e-6)
    assert not layer.supports_jit


@keras.utils.register_keras_serializable()
class ScaledSorter(layers.Sorter):
    """Laplace's ranks with a weight."""

    def build(self, input_shape):
        self.scale = self.add_weight(
            name="scale", shape=(), initializer="ones", dtype="float32"
        )
        self.built = True

    def soft_ranks(self, scores, mask):
        above = tf.sigmoid(
            (scores[:, tf.newaxis] - scores[..., tf.newaxis]) * self.scale
        )
        return 0.5 + tf.reduce_sum(above, axis=-1)


@pytest.mark.keras2
@pytest.mark.parametrize("trainable", [True, False])
def test_a_companion_is_trained_saved_and_resumed_with_the_model(
    trainable, rng, reloaded
):
    features = rng.normal(size=(32, 3))
    labels = rng.normal(size=32)
    sorter = ScaledSorter(trainable=trainable)
    sorter.build((None, None))
    of_model = keras.Input((3,)), keras.layers.Dense(1), layers.Companion(sorter)
    model = keras.Sequential(of_model)
    model.compile(keras.optimizers.Adam(0.1), loss=losses.SpearmanLoss(sorter))
    model.fit(features, labels, epochs=2, verbose=0)
    assert (abs(float(np.array(sorter.scale)) - 1) > 1e-3) == trainable
    loaded = reloaded(model)
    assert_array_equal(loaded.get_weights()[-1], model.get_weights()[-1])
    loaded.compile(loaded.optimizer, loss=losses.SpearmanLoss(loaded.layers[-1].layer))
    for each in (model, loaded):
        each.fit(features, labels, epochs=1, verbose=0, shuffle=False)
    assert_all_close(loaded.get_weights(), model.get_weights(), 1e-5, 1e-6)
