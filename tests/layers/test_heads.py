"""Heads against their formulas in NumPy float64, and kinds of classes."""

import itertools
import json

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize
from tensorflow import keras

from rank4class_tf import _keras, layers
from rank4class_tf.losses import SoftmaxLoss
from tests.contract.head_table import ARRAY, WORDS, words_encoder
from tests.derivatives import value_and_gradient, with_gradients
from tests.refused import refused, refused_in_graph, warned
from tests.small_models import linear, sequential


def float64(weight):
    return tf.convert_to_tensor(weight).numpy().astype(np.float64)


def mlp(hidden, head):
    """The layers behind the first kernel."""
    interaction = head.interaction
    hidden = hidden + float64(interaction.biases[0])
    for kernel, bias in zip(interaction.kernels, interaction.biases[1:], strict=True):
        hidden = np.maximum(hidden, 0) @ float64(kernel) + float64(bias)
    return hidden[..., 0]


def latent_cross(head, h):
    crossed = np.stack([h * (1 + c) for c in float64(head.classes.embeddings)], axis=1)
    return mlp(crossed @ float64(head.interaction.first[0]), head)


def concat(head, h):
    """The paper's form: concatenate, then multiply by one kernel."""
    classes = float64(head.classes.embeddings)
    kernel = np.concatenate([float64(kernel) for kernel in head.interaction.first])
    pairs = [[np.concatenate([row, c]) for c in classes] for row in h]
    return mlp(np.array(pairs) @ kernel, head)


def cosine(head, h):
    classes = float64(head.classes.embeddings)
    lengths = np.linalg.norm(h, axis=1)[:, None] * np.linalg.norm(classes, axis=1)
    return 3 * h @ classes.T / lengths


def bilinear(head, h):
    classes = float64(head.classes.embeddings)
    bias = float64(head.classes.bias)
    return (
        np.einsum("bd,de,ne->bn", h, float64(head.interaction.kernel), classes) + bias
    )


def randomise(head, rng):
    head.set_weights([rng.normal(size=w.shape) for w in head.get_weights()])


@pytest.mark.parametrize(
    "head, formula",
    [
        (layers.LatentCrossHead(5, units=(7, 6)), latent_cross),
        (layers.ConcatHead(5, units=(7, 6)), concat),
        (layers.ConcatHead(layers.ClassTable(5, width=2), units=(7,)), concat),
        (layers.CosineHead(5, scale=3), cosine),
        (layers.BilinearHead(5), bilinear),
    ],
)
def test_equals_formula(head, formula, rng):
    h = rng.normal(size=(3, 4))
    head(tf.zeros([1, 4]))
    randomise(head, rng)
    upstream = tf.ones([3, 1]) * tf.range(1.0, 6.0)
    scores, gradient = value_and_gradient(head, tf.constant(h, tf.float32), upstream)
    assert_allclose(scores, formula(head, h), rtol=1e-4, atol=1e-4)

    def total_of(x):
        return (formula(head, x.reshape(h.shape)) @ np.arange(1.0, 6.0)).sum()

    numeric = optimize.approx_fprime(h.ravel(), total_of, 1e-6).reshape(h.shape)
    assert_allclose(gradient, numeric, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "head_class, options, use_bias",
    [
        (layers.DotProductHead, {}, True),
        (layers.BilinearHead, {}, False),
        (layers.LatentCrossHead, {"units": (7, 6)}, True),
        (layers.ConcatHead, {"units": (7,)}, False),
    ],
)
def test_starts_from_a_dense_with_equal_scores(
    head_class, options, use_bias, rng, normal
):
    dense = keras.layers.Dense(5, use_bias=use_bias)
    dense.build((None, 4))
    randomise(dense, rng)
    inputs = normal(3, 4)
    head = head_class.from_dense(dense, **options)
    assert_allclose(head(inputs), dense(inputs), rtol=1e-5, atol=1e-5)
    model = sequential((4,), head)
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    for _ in range(2):  # The last kernel of an MLP moves first, then the others.
        model.fit(inputs, np.ones([3, 5]), verbose=0)
    assert not np.allclose(head(inputs), dense(inputs), atol=1e-3)
    assert type(head).from_config(head.get_config())(inputs).shape == (3, 5)


def test_an_argument_without_an_attribute_is_not_lost():
    class Forgetful(layers.Head):
        def __init__(self, classes, margin=0.5, **kwargs):
            super().__init__(classes, "dot_product", **kwargs)

    with pytest.raises(AttributeError, match="'margin'"):
        Forgetful(5).get_config()


def test_margin_lowers_the_scores_of_the_classes_in_training(normal):
    head = layers.CosineHead(5, scale=3, margin=0.4)
    inputs = normal(3, 4)
    plain = head(inputs).numpy()
    ids = np.array([[1, -1], [4, 4], [0, 2]])
    expected = plain - 3 * 0.4 * (ids[:, :, None] == np.arange(5)).any(axis=1)
    assert_allclose(head(inputs, class_ids=ids, training=True), expected, rtol=1e-6)
    assert_array_equal(head(inputs, class_ids=ids, training=False), plain)
    with refused_in_graph(r"class ids in \[0, 5\).* \[5\]"):
        tf.function(head)(inputs, class_ids=tf.constant([5, 1, 2]), training=True)
    compiled = tf.function(head, jit_compile=True)
    scores = compiled(inputs, class_ids=tf.constant([5, 1, 2]), training=True)
    assert np.isnan(scores[0]).all() and np.isfinite(scores[1:]).all()


def test_margin_needs_class_ids_in_a_model():
    inputs = keras.Input((4,)), keras.Input((), dtype="int32")
    features = np.ones((4, 4))
    ids = np.array([0, 1, 2, 0])
    head = layers.CosineHead(3, margin=0.2)
    without = keras.Model(inputs[0], head(inputs[0]))
    without.compile("sgd", SoftmaxLoss())
    with warned("`margin`=0.2 has no effect without class ids"):
        without.fit(features, ids, verbose=0)
    model = keras.Model(inputs, head(inputs[0], class_ids=inputs[1]))
    model.compile("sgd", SoftmaxLoss())
    model.fit([features, ids], ids, verbose=0)


@pytest.mark.parametrize("head_class", [layers.LatentCrossHead, layers.ConcatHead])
def test_dropout_is_in_training_alone_and_fresh(head_class, normal):
    inputs = normal(3, 4)
    head, other = (head_class(5, units=(64, 32), dropout=0.5, seed=2) for _ in range(2))
    assert_array_equal(head(inputs), head(inputs))
    other.build((None, 4))
    other.set_weights(head.get_weights())
    draws = [head(inputs, training=True).numpy() for _ in range(2)]
    assert np.abs(draws[0] - draws[1]).min() > 0
    assert_array_equal(other(inputs, training=True), draws[0])


def test_dropout_draws_anew_for_each_layer_and_block(rng):
    """A unit of 1 survives two layers with chance (1 - p)^2; each class has its own."""
    num_classes = 2050  # They are scored in blocks above 2,048.
    head = layers.ConcatHead(
        num_classes, units=(64, 64), dropout=0.5, seed=2, activation="linear"
    )
    head.build((None, 4))
    mlp = head.interaction
    for weight in (*mlp.first, mlp.kernels[0]):
        weight.assign(tf.zeros_like(weight))
    mlp.biases[0].assign(tf.ones([64]))
    mlp.kernels[0].assign(tf.eye(64))
    weights = rng.normal(size=(64, 1)) + 1
    mlp.kernels[1].assign(weights)
    scores = head(np.zeros((1, 4), "float32"), training=True).numpy()[0]
    error = scores.std() / np.sqrt(num_classes)
    assert abs(scores.mean() - weights.sum()) < 5 * error
    assert len(np.unique(scores)) > 0.99 * num_classes


@pytest.mark.parametrize("head_class", [layers.LatentCrossHead, layers.ConcatHead])
def test_equal_kernels_start_unequal(head_class):
    head = head_class(5, units=(8, 8, 8))
    head.build((None, 8))
    kernels = [
        np.array(x) for x in (*head.interaction.first, *head.interaction.kernels[:2])
    ]
    for one, other in itertools.combinations(kernels, 2):
        assert not np.array_equal(one, other)


def test_cosines_of_rows_whose_squares_overflow(rng, normal):
    """A long row has its cosine and gradient, and others have theirs, as in float64."""
    lengths = np.array([[1e30], [1e-3], [1.0]])
    head = layers.CosineHead(3, scale=3.0)
    rows = rng.normal(size=[3, 4]) * lengths
    head.build((None, 4))
    head.set_weights([rows])
    h = tf.constant(normal(2, 4))
    scores, gradient = value_and_gradient(lambda x: head(1e30 * x), h)
    assert_allclose(scores, cosine(head, float64(h)), rtol=1e-5)
    step = tf.function(lambda: with_gradients(lambda: head(h), head.classes.embeddings))
    both = [
        (gradient, float64(h), rows),
        (lengths * step()[1], rows / lengths, float64(h)),
    ]
    for found, vectors, others in both:
        length, of_others = (
            np.linalg.norm(x, axis=1, keepdims=True) for x in (vectors, others)
        )
        vectors = vectors / length
        total = 3 * (others / of_others).sum(axis=0)
        expected = (total - (vectors @ total)[:, None] * vectors) / length
        assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_cosines_of_rows_without_a_direction(normal):
    """A row near zero has a cosine and a gradient of 0; a NaN shows in its own row."""
    h, rows = (tf.constant(normal(n, 4)) for n in (2, 4))
    rows *= [[1.0], [1e-8], [0.0], [np.nan]]
    score = layers.CosineInteraction(scale=1.0)
    of_each = tf.tile(rows[tf.newaxis], [2, 1, 1])
    scores, gradient = value_and_gradient(lambda x: score([h, x]), rows)
    scores_of_each, gradient_of_each = value_and_gradient(
        lambda x: score([h, x]), of_each
    )
    assert_allclose(scores_of_each, scores, rtol=1e-5)
    assert_allclose(tf.reduce_sum(gradient_of_each, axis=0), gradient, rtol=1e-5)
    for x in (tf.transpose(scores).numpy(), gradient.numpy()):
        assert x[0].all() and not x[1:3].any() and np.isnan(x[3]).all()


ROW = [[1.0, 2.0, 3.0, 4.0]]
KINDS = {
    "table": lambda: layers.ClassTable(5, 4),
    "table_with_biases": lambda: layers.ClassTable(
        5, 4, use_bias=True, initializer="ones"
    ),
    "array": lambda: layers.EncodedClasses(ARRAY, keras.layers.Dense(4)),
    "strings": lambda: layers.EncodedClasses(WORDS, words_encoder()),
    "tuple": lambda: layers.EncodedClasses(
        (ARRAY, ARRAY[:, :1]), keras.layers.Concatenate()
    ),
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
        assert_allclose(of_ids, rows[np.array(ids)], rtol=1e-5, atol=1e-6)


@pytest.mark.keras2
@pytest.mark.often("attention", "strings", "table")
def test_added_classes_are_scored_at_once(kind, classes, normal, reloaded):
    encodings = normal(3, 4)
    model = sequential((4,), layers.DotProductHead(classes))
    before = model.predict(encodings, verbose=0)
    classes.add(ADDED[kind])
    after = model(encodings).numpy()
    assert after.shape == (3, 6) and classes.num_classes == 6
    if kind != "attention":  # There, the new one is seen by the others.
        assert_allclose(after[:, :5], before, rtol=1e-5, atol=1e-6)
    own = classes.rows([5]).numpy()
    if kind.startswith("table"):
        assert_array_equal(own, ADDED[kind])
    if kind == "array":
        kernel, bias = classes.encoder.get_weights()
        assert_allclose(own, [[1, 2, 3]] @ kernel + bias, rtol=1e-6)
    assert_allclose(after[:, 5:], encodings @ own.T, rtol=1e-4, atol=1e-5)

    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    expected = model.predict(encodings, verbose=0)
    assert_allclose(expected, after, rtol=1e-5, atol=1e-6)
    if kind != "tuple":  # Its encoder has no weights.
        model.fit(encodings, np.ones([3, 6]), verbose=0)  # They learn, too.
        expected = model.predict(encodings, verbose=0)
        assert np.abs(expected - after)[:, 5].max() > 0
    loaded = reloaded(model)
    assert_allclose(loaded.predict(encodings, verbose=0), expected, rtol=1e-5)


def test_a_table_of_them_scores_the_same(classes, normal):
    encodings = normal(3, 4)
    head = layers.LatentCrossHead(classes, units=(6,))
    other = head.with_classes(classes.to_table(block_size=2))
    assert_allclose(other(encodings), head(encodings), rtol=1e-4, atol=1e-5)
    assert (
        isinstance(other.classes, layers.ClassTable)
        and other.interaction is head.interaction
    )


def test_rows_and_biases_of_tables(rng):
    rows = np.array([[1.0, 1 / 3]])
    table = layers.ClassTable.from_rows(tf.constant(rows), dtype="float64").to_table()
    assert_array_equal(table.rows(), rows)
    for given in (
        [[1.0, 2.0]],
        np.array([[1, 2]]),
        tf.constant([[1.0, 2.0]], tf.float64),
    ):
        assert_array_equal(layers.ClassTable.from_rows(given).rows(), [[1.0, 2.0]])
    classes = layers.ClassTable.from_rows(np.ones([2, 3]), [1.0, 2.0])
    classes.add(rng.normal(size=(2, 3)), biases=[3.0, 4.0])
    classes.add(rng.normal(size=(1, 3)))
    assert_array_equal(classes.biases(), [1, 2, 3, 4, 0])
    assert_array_equal(classes.biases([3, 0]), [4, 1])


@pytest.mark.keras2
def test_a_table_that_grows_is_regularised_once():
    table = layers.ClassTable(1, 1, regularizer="l2", initializer="ones")
    table.build((None, 1))
    for size in (2.0, 3.0):
        table.add(np.ones([1, 1]))
        assert [float(loss) for loss in table.losses] == pytest.approx([0.01 * size])


def test_attention_is_a_block_of_a_transformer(normal):
    rows = normal(5, 4)
    classes = layers.ClassAttention(layers.ClassTable.from_rows(rows), num_heads=2)
    classes.build((None, 4))
    centred = rows - rows.mean(axis=1, keepdims=True)
    normalised = centred / np.sqrt(
        rows.var(axis=1, keepdims=True) + classes.norm.epsilon
    )
    query, key, value, output = (
        w.numpy().astype(np.float64) for w in classes.attention.weights
    )
    q, k, v = (
        np.einsum("cd,dhe->hce", normalised, kernel) for kernel in (query, key, value)
    )
    shares = scipy.special.softmax(q @ k.transpose(0, 2, 1) / np.sqrt(2), axis=-1)
    expected = rows + np.einsum("hce,hed->cd", shares @ v, output)
    assert_allclose(classes.rows(), expected, rtol=1e-5, atol=1e-5)
    assert_allclose(classes.rows([3, 1]), expected[[3, 1]], rtol=1e-5, atol=1e-5)


@pytest.mark.keras2
def test_an_encoder_that_examples_and_classes_share(normal, reloaded):
    encoder = linear(3, 4)
    head = layers.DotProductHead(layers.EncodedClasses(ARRAY, encoder))
    model = sequential((3,), encoder, head)
    assert len(model.trainable_variables) == 2
    features = normal(6, 3)
    if not _keras.KERAS_3:  # It makes two layers of one that is shared, and says so.
        with refused("received 0 variables during loading"):
            reloaded(model)
        return
    assert_allclose(reloaded(model)(features), model(features), rtol=1e-6)


def test_only_sampled_classes_are_encoded(normal):
    """A step over many classes, whose encoder counts the rows it is given."""
    seen = []

    class Counting(keras.layers.Dense):
        def call(self, inputs):
            seen.append(inputs.shape[0])
            return super().call(inputs)

    features = normal(5000, 3)
    head = layers.SampledScores(
        layers.EncodedClasses(features, Counting(4)), 20, seed=1
    )
    scores = head(
        np.ones([2, 4], "float32"), class_ids=[7, 8], num_mined=3, training=True
    )
    assert scores.shape == (2, 4) and np.isfinite(scores).all()
    assert max(seen) == 2 + 20  # The classes of the examples, and the sample.
    values, ids = head.top_k(tf.ones([2, 4]), 3)
    rows = head.classes.rows().numpy()
    cosines = rows.sum(axis=1) / np.linalg.norm(rows, axis=1) / 2
    assert_array_equal(ids[0], np.argsort(-cosines)[:3])
    assert_allclose(values[0], -np.sort(-cosines)[:3], rtol=1e-5)


def test_biases_count_in_sampled_scores(normal):
    rows = normal(6, 4)
    classes = layers.ClassTable.from_rows(rows, np.arange(6.0))
    head = layers.SampledScores(classes, 3, normalize=False, seed=1)
    x = normal(2, 4)
    expected = x @ rows.T + np.arange(6)
    assert_allclose(head(x), expected, rtol=1e-5)
    assert_allclose(
        head(x, class_ids=[3, 5])[:, 0], expected[[0, 1], [3, 5]], rtol=1e-5
    )


def test_features_are_in_the_config_as_they_are():
    bytes_and_numbers = np.array([b"\xff", b""]), [[1], [2]]
    features = {"a": tf.cast([[0.5], [1 / 3]], tf.bfloat16), "b": bytes_and_numbers}
    classes = layers.EncodedClasses(features, keras.layers.Dense(2))
    again = layers.EncodedClasses.from_config(
        json.loads(json.dumps(classes.get_config()))
    ).features
    tf.nest.assert_same_structure(again, classes.features)
    for one, other in zip(
        tf.nest.flatten(again), tf.nest.flatten(classes.features), strict=True
    ):
        assert one.dtype == other.dtype
        assert_array_equal(one, other)
