"""What layers make of precisions, integers and shapes that others give them."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers

SCORES = tf.constant([[1e6, 1.0001, 2.0]])
IDS = tf.constant([1, 2, 3])
FIRST = tf.constant([0])
INFINITY = float("inf")

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
@pytest.mark.parametrize("name", LAYERS)
def test_mixed_precision_rounds_no_scores(name, mixed_float16):
    result = LAYERS[name](SCORES)
    assert result.dtype == tf.float32
    assert np.float32(1e6) in result.numpy() and np.float32(1.0001) in result.numpy()


def test_mixed_precision_rounds_no_encodings_in_memory(mixed_float16):
    memory = layers.CrossBatchMemory(1)
    memory(tf.constant([[1e6, 1.0001]]), tf.constant([7]), training=True)
    encodings, _, _ = memory(tf.zeros([1, 2]), tf.constant([1]))
    np.testing.assert_array_equal(encodings, np.float32([[1e6, 1.0001]]))


@pytest.mark.parametrize("name", set(LAYERS) - {"companion"})
def test_integer_scores(name):
    integers = tf.constant([[30, 10, 20]])
    expected = LAYERS[name](tf.cast(integers, tf.float32))
    np.testing.assert_array_equal(LAYERS[name](integers), expected)


def test_integer_encodings():
    head = layers.DotProductHead(3)
    np.testing.assert_array_equal(head(tf.ones([2, 4], tf.int32)), head(tf.ones([2, 4])))


@pytest.mark.parametrize("name", ["bilinear", "concat", "cosine", "dot_product", "latent_cross"])
def test_a_dtype_is_that_of_all_parts_of_a_head(name):
    head = layers.Head(3, name, dtype="float64")

    def step(encodings):
        with tf.GradientTape() as tape:
            scores = head(encodings)
        return scores, tape.gradient(scores, head.trainable_weights)

    encodings = tf.constant([[1.0, 2.0]], tf.float64)
    found = [tf.nest.flatten(run(encodings)) for run in (step, tf.function(step))]
    for eager, graph in zip(*found, strict=True):
        assert eager.dtype == graph.dtype == tf.float64
        np.testing.assert_allclose(eager, graph)
    assert {tf.as_dtype(w.dtype) for w in head.trainable_weights} == {tf.float64}


def test_an_infinite_positive_costs_no_negative():
    scores, labels = layers.HardNegativeMining(2)(tf.constant([[INFINITY, 5.0, 6.0]]), FIRST)
    np.testing.assert_array_equal(scores, [[INFINITY, 6.0, 5.0]])
    np.testing.assert_array_equal(labels, [0])


@pytest.mark.parametrize("shape", [[1], [4], [2, 3], [1, 1], []])
def test_values_of_other_columns_raise(shape):
    with pytest.raises(ValueError, match="`candidate_ids` must have the shape"):
        layers.RemoveAccidentalHits()(SCORES, FIRST, tf.ones(shape, tf.int32))
    with pytest.raises(ValueError, match="`expected_counts` must have the shape"):
        layers.SamplingProbabilityCorrection()(SCORES, FIRST, tf.ones(shape))


@pytest.mark.parametrize("ids", [[7, 8], [[7], [8], [9]]])
def test_a_memory_needs_an_id_for_each_encoding(ids):
    with pytest.raises(ValueError, match="`ids` must have the shape .batch. of `encodings`"):
        layers.CrossBatchMemory(4)(tf.ones([3, 1]), tf.constant(ids), training=True)


def test_a_companion_passes_a_mask_on():
    ids = tf.constant([[1, 2, 0, 0]])
    embedding = keras.layers.Embedding(3, 2, mask_zero=True)
    pooling = keras.layers.GlobalAveragePooling1D()
    companion = layers.Companion(layers.LaplaceSorter())
    expected = keras.Sequential([embedding, pooling])(ids)
    model = keras.Sequential([embedding, companion, pooling])
    np.testing.assert_array_equal(model(ids), expected)


@pytest.mark.parametrize(
    "given",
    [
        tf.constant(["cat", "dog"]),
        np.array(["cat", "dog"]),
        [tf.constant("cat"), b"dog"],
        iter(["cat", "dog"]),
    ],
)
def test_names_of_many_types(given):
    best = layers.TopClasses(1, given)(tf.constant([[1.0, 2.0]]))
    assert best["class_names"].numpy() == [[b"dog"]]


@pytest.mark.parametrize("given", ["cat", b"cat", {"cat": 0}, 5])
def test_what_is_no_list_of_names(given):
    with pytest.raises(ValueError, match="`class_names` must be a list of names"):
        layers.TopClasses(1, given)


@pytest.mark.parametrize("add", [{"rows": [["a", "b"]]}, {"rows": [[1.0, 2.0]], "biases": ["a"]}])
def test_classes_stay_where_others_cannot_be_added(add):
    table = layers.ClassTable.from_rows(tf.ones([2, 2]), tf.ones([2]))
    with pytest.raises(ValueError, match="must be numbers. Received"):
        table.add(**add)
    assert table.num_classes == 2
    np.testing.assert_array_equal(table.rows(), np.ones([2, 2]))
    np.testing.assert_array_equal(table.biases(), np.ones(2))


@pytest.mark.keras2
def test_a_table_that_grows_is_regularised_once():
    table = layers.ClassTable(1, 1, regularizer=keras.regularizers.L2(1.0), initializer="ones")
    table.build((None, 1))
    for size in (2.0, 3.0):
        table.add(np.ones([1, 1]))
        assert [float(loss) for loss in table.losses] == [size]


def test_rows_of_a_table():
    rows = np.array([[1.0, 1 / 3]])
    table = layers.ClassTable.from_rows(tf.constant(rows), dtype="float64").to_table()
    np.testing.assert_array_equal(table.rows(), rows)
    for given in ([[1.0, 2.0]], np.array([[1, 2]]), tf.constant([[1.0, 2.0]], tf.float64)):
        table = layers.ClassTable.from_rows(given)
        np.testing.assert_array_equal(table.to_table().rows(), np.float32([[1.0, 2.0]]))
    with pytest.raises(ValueError, match="`rows` must have the shape"):
        layers.ClassTable.from_rows(tf.constant([1.0, 2.0]))
    with pytest.raises(ValueError, match="`block_size` must be a positive integer"):
        table.to_table(0)


def test_a_dtype_of_a_layer_of_scores():
    half = tf.cast([[1.0, 2.0, 3.0]], tf.float16)
    for layer in (layers.RemoveAccidentalHits, layers.SamplingProbabilityCorrection):
        for dtype in ("float32", "float64"):
            assert layer(dtype=dtype)(half, FIRST, tf.constant([1, 2, 3])).dtype == dtype
