"""Kinds of classes: rows, added classes, tables of them, and the heads over them."""

import json

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras, layers
from tests.contract.head_table import ARRAY, WORDS, words_encoder

ROW = [[1.0, 2.0, 3.0, 4.0]]
KINDS = {
    "table": lambda: layers.ClassTable(5, 4),
    "table_with_biases": lambda: layers.ClassTable(5, 4, use_bias=True, initializer="ones"),
    "array": lambda: layers.EncodedClasses(ARRAY, keras.layers.Dense(4)),
    "strings": lambda: layers.EncodedClasses(WORDS, words_encoder()),
    "tuple": lambda: layers.EncodedClasses((ARRAY, ARRAY[:, :1]), keras.layers.Concatenate()),
    "attention": lambda: layers.ClassAttention(layers.ClassTable(5, 4), num_heads=2),
}
ADDED = {
    **dict.fromkeys(["table", "table_with_biases", "attention"], ROW),
    "array": [[1, 2, 3]],  # Integers, to features that are floats.
    "strings": ["green sea"],
    "tuple": ([[1.0, 2.0, 3.0]], [[5.0]]),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def classes(kind):
    made = KINDS[kind]()
    made.build((None, 4))
    return made


def test_rows_of_some_are_among_those_of_all(classes):
    rows = classes.rows().numpy()
    assert rows.shape == (5, 4) == (classes.num_classes, classes.width)
    for ids in ([3, 0, 3], [[1, 2], [4, 4]], np.zeros([0], int)):
        of_ids = classes.rows(tf.constant(ids))
        assert of_ids.shape == (*np.shape(ids), 4)
        np.testing.assert_allclose(of_ids, rows[np.array(ids)], rtol=1e-5, atol=1e-6)


@pytest.mark.keras2
def test_added_classes_are_scored_at_once(kind, classes, rng, tmp_path):
    encodings = rng.normal(size=(3, 4)).astype(np.float32)
    model = keras.Sequential([keras.layers.Input((4,)), layers.DotProductHead(classes)])
    before = model.predict(encodings, verbose=0)
    classes.add(ADDED[kind])
    after = model(encodings).numpy()
    assert after.shape == (3, 6) and classes.num_classes == 6
    if kind != "attention":  # There, the new one is seen by the others.
        np.testing.assert_allclose(after[:, :5], before, rtol=1e-5, atol=1e-6)
    own = classes.rows([5]).numpy()
    if kind.startswith("table"):
        np.testing.assert_array_equal(own, ADDED[kind])
    if kind == "array":
        kernel, bias = classes.encoder.get_weights()
        np.testing.assert_allclose(own, [[1, 2, 3]] @ kernel + bias, rtol=1e-6)
    np.testing.assert_allclose(after[:, 5:], encodings @ own.T, rtol=1e-4, atol=1e-5)

    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    expected = model.predict(encodings, verbose=0)
    np.testing.assert_allclose(expected, after, rtol=1e-5, atol=1e-6)
    if kind != "tuple":  # Its encoder has no weights.
        model.fit(encodings, np.ones([3, 6]), verbose=0)  # They learn, too.
        expected = model.predict(encodings, verbose=0)
        assert np.abs(expected - after)[:, 5].max() > 0
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(encodings, verbose=0), expected, rtol=1e-5)


def test_a_table_of_them_scores_the_same(classes, rng):
    encodings = rng.normal(size=(3, 4)).astype(np.float32)
    head = layers.LatentCrossHead(classes, units=(6,))
    other = head.with_classes(classes.to_table(block_size=2))
    np.testing.assert_allclose(other(encodings), head(encodings), rtol=1e-4, atol=1e-5)
    assert isinstance(other.classes, layers.ClassTable) and other.interaction is head.interaction


def test_biases_of_added_classes(rng):
    classes = layers.ClassTable.from_rows(np.ones([2, 3]), [1.0, 2.0])
    classes.add(rng.normal(size=(2, 3)), biases=[3.0, 4.0])
    classes.add(rng.normal(size=(1, 3)))
    np.testing.assert_array_equal(classes.biases(), [1, 2, 3, 4, 0])
    np.testing.assert_array_equal(classes.biases([3, 0]), [4, 1])


@pytest.mark.keras2
def test_a_table_that_grows_is_regularised_once():
    table = layers.ClassTable(1, 1, regularizer="l2", initializer="ones")
    table.build((None, 1))
    for size in (2.0, 3.0):
        table.add(np.ones([1, 1]))
        assert [float(loss) for loss in table.losses] == pytest.approx([0.01 * size])


def test_rows_of_a_table():
    rows = np.array([[1.0, 1 / 3]])
    table = layers.ClassTable.from_rows(tf.constant(rows), dtype="float64").to_table()
    np.testing.assert_array_equal(table.rows(), rows)
    for given in ([[1.0, 2.0]], np.array([[1, 2]]), tf.constant([[1.0, 2.0]], tf.float64)):
        np.testing.assert_array_equal(layers.ClassTable.from_rows(given).rows(), [[1.0, 2.0]])


def test_attention_is_a_block_of_a_transformer(rng):
    rows = rng.normal(size=(5, 4)).astype(np.float32)
    classes = layers.ClassAttention(layers.ClassTable.from_rows(rows), num_heads=2)
    classes.build((None, 4))
    centred = rows - rows.mean(axis=1, keepdims=True)
    normalised = centred / np.sqrt(rows.var(axis=1, keepdims=True) + classes.norm.epsilon)
    query, key, value, output = (w.numpy().astype(np.float64) for w in classes.attention.weights)
    q, k, v = (np.einsum("cd,dhe->hce", normalised, kernel) for kernel in (query, key, value))
    shares = scipy.special.softmax(q @ k.transpose(0, 2, 1) / np.sqrt(2), axis=-1)
    expected = rows + np.einsum("hce,hed->cd", shares @ v, output)
    np.testing.assert_allclose(classes.rows(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(classes.rows([3, 1]), expected[[3, 1]], rtol=1e-5, atol=1e-5)


@pytest.mark.keras2
def test_an_encoder_that_examples_and_classes_share(rng, tmp_path):
    encoder = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4)])
    head = layers.DotProductHead(layers.EncodedClasses(ARRAY, encoder))
    model = keras.Sequential([keras.layers.Input((3,)), encoder, head])
    assert len(model.trainable_variables) == 2
    features = rng.normal(size=(6, 3)).astype(np.float32)
    model.save(tmp_path / "model.keras")
    if not _keras.KERAS_3:  # It makes two layers of one that is shared, and says so.
        with pytest.raises(ValueError, match="received 0 variables during loading"):
            keras.models.load_model(tmp_path / "model.keras")
        return
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(features), model(features), rtol=1e-6)


def test_only_sampled_classes_are_encoded(rng):
    """A step over many classes, whose encoder counts the rows it is given."""
    seen = []

    class Counting(keras.layers.Dense):
        def call(self, inputs):
            seen.append(inputs.shape[0])
            return super().call(inputs)

    features = rng.normal(size=(5000, 3)).astype(np.float32)
    head = layers.SampledScores(layers.EncodedClasses(features, Counting(4)), 20, seed=1)
    scores = head(np.ones([2, 4], np.float32), class_ids=[7, 8], num_mined=3, training=True)
    assert scores.shape == (2, 4) and np.isfinite(scores).all() and max(seen) <= 20
    values, ids = head.top_k(tf.ones([2, 4]), 3)
    rows = head.classes.rows().numpy()
    cosines = rows.sum(axis=1) / np.linalg.norm(rows, axis=1) / 2
    np.testing.assert_array_equal(ids[0], np.argsort(-cosines)[:3])
    np.testing.assert_allclose(values[0], -np.sort(-cosines)[:3], rtol=1e-5)


def test_encoded_classes_learn_from_samples(rng):
    classes = layers.EncodedClasses(ARRAY, keras.layers.Dense(4))
    head = layers.SampledScores(classes, 2, normalize=False, seed=1)
    x = rng.normal(size=(3, 4)).astype(np.float32)
    head.build((None, 4))
    with tf.GradientTape() as tape:
        scores = head(x, class_ids=[1, 2, 3], num_mined=1, training=True)
        total = tf.reduce_sum(scores[:, 0])
    of_kernel, of_bias = tape.gradient(total, head.trainable_variables)
    np.testing.assert_allclose(of_kernel, ARRAY[1:4].T @ x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of_bias, x.sum(axis=0), rtol=1e-4, atol=1e-5)


def test_biases_count_in_sampled_scores(rng):
    rows = rng.normal(size=(6, 4)).astype(np.float32)
    classes = layers.ClassTable.from_rows(rows, np.arange(6.0))
    head = layers.SampledScores(classes, 3, normalize=False, seed=1)
    x = rng.normal(size=(2, 4)).astype(np.float32)
    expected = x @ rows.T + np.arange(6)
    np.testing.assert_allclose(head(x), expected, rtol=1e-5)
    np.testing.assert_allclose(head(x, class_ids=[3, 5])[:, 0], expected[[0, 1], [3, 5]], rtol=1e-5)


def test_features_are_in_the_config_as_they_are():
    bytes_and_numbers = np.array([b"\xff", b""]), [[1], [2]]
    features = {"a": tf.cast([[0.5], [1 / 3]], tf.bfloat16), "b": bytes_and_numbers}
    classes = layers.EncodedClasses(features, keras.layers.Dense(2))
    config = json.loads(json.dumps(classes.get_config()))
    again = layers.EncodedClasses.from_config(config).features
    tf.nest.assert_same_structure(again, classes.features)
    for one, other in zip(tf.nest.flatten(again), tf.nest.flatten(classes.features), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
