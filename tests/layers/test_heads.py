"""Each head against its formula in NumPy float64, forward and gradient."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize
from tensorflow import keras

from rank4class_tf import layers
from rank4class_tf.losses import SoftmaxLoss


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
    classes = float64(head.classes.embeddings)
    crossed = np.stack([h * (1 + c) for c in classes], axis=1)
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
    classes, bias = float64(head.classes.embeddings), float64(head.classes.bias)
    return np.einsum("bd,de,ne->bn", h, float64(head.interaction.kernel), classes) + bias


def randomise(head, rng):
    head.set_weights([rng.normal(size=w.shape) for w in head.get_weights()])


@pytest.mark.parametrize(
    ("head", "formula"),
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
    inputs = tf.constant(h, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        scores = head(inputs)
        total = tf.reduce_sum(scores * tf.range(1.0, 6.0))
    np.testing.assert_allclose(scores, formula(head, h), rtol=1e-4, atol=1e-4)

    def total_of(x):
        return (formula(head, x.reshape(h.shape)) @ np.arange(1.0, 6.0)).sum()

    numeric = optimize.approx_fprime(h.ravel(), total_of, 1e-6).reshape(h.shape)
    np.testing.assert_allclose(tape.gradient(total, inputs), numeric, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("head_class", "options", "use_bias"),
    [
        (layers.DotProductHead, {}, True),
        (layers.BilinearHead, {}, False),
        (layers.LatentCrossHead, {"units": (7, 6)}, True),
        (layers.ConcatHead, {"units": (7,)}, False),
    ],
)
def test_starts_from_a_dense_with_equal_scores(head_class, options, use_bias, rng):
    dense = keras.layers.Dense(5, use_bias=use_bias)
    dense.build((None, 4))
    randomise(dense, rng)
    inputs = rng.normal(size=(3, 4)).astype(np.float32)
    head = head_class.from_dense(dense, **options)
    np.testing.assert_allclose(head(inputs), dense(inputs), rtol=1e-5, atol=1e-5)
    model = keras.Sequential([keras.layers.Input((4,)), head])
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    for _ in range(2):  # The last kernel of an MLP moves first, then the others.
        model.fit(inputs, np.ones([3, 5]), verbose=0)
    assert not np.allclose(head(inputs), dense(inputs), atol=1e-3)
    assert type(head).from_config(head.get_config())(inputs).shape == (3, 5)


def test_margin_lowers_the_scores_of_the_classes_in_training(rng):
    head = layers.CosineHead(5, scale=3, margin=0.4)
    inputs = rng.normal(size=(3, 4)).astype(np.float32)
    plain = head(inputs).numpy()
    ids = np.array([[1, -1], [4, 4], [0, 2]])
    own = (ids[:, :, None] == np.arange(5)).any(axis=1)
    expected = plain - 3 * 0.4 * own
    lowered = head(inputs, class_ids=ids, training=True)
    np.testing.assert_allclose(lowered, expected, rtol=1e-6)
    np.testing.assert_array_equal(head(inputs, class_ids=ids, training=False), plain)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"class ids in \[0, 5\).* \[5\]"):
        tf.function(head)(inputs, class_ids=tf.constant([5, 1, 2]), training=True)
    compiled = tf.function(head, jit_compile=True)
    scores = compiled(inputs, class_ids=tf.constant([5, 1, 2]), training=True)
    assert np.isnan(scores[0]).all() and np.isfinite(scores[1:]).all()


def test_margin_needs_class_ids_in_a_model():
    inputs = keras.Input((4,)), keras.Input((), dtype="int32")
    features, ids, head = np.ones((4, 4)), np.array([0, 1, 2, 0]), layers.CosineHead(3, margin=0.2)
    without = keras.Model(inputs[0], head(inputs[0]))
    without.compile("sgd", SoftmaxLoss())
    with pytest.warns(UserWarning, match="`margin`=0.2 has no effect without class ids"):
        without.fit(features, ids, verbose=0)
    model = keras.Model(inputs, head(inputs[0], class_ids=inputs[1]))
    model.compile("sgd", SoftmaxLoss())
    model.fit([features, ids], ids, verbose=0)


@pytest.mark.parametrize("head_class", [layers.LatentCrossHead, layers.ConcatHead])
def test_dropout_is_in_training_alone_and_fresh(head_class, rng):
    inputs = rng.normal(size=(3, 4)).astype(np.float32)
    head, other = (head_class(5, units=(64, 32), dropout=0.5, seed=2) for _ in range(2))
    np.testing.assert_array_equal(head(inputs), head(inputs))
    other.build((None, 4))
    other.set_weights(head.get_weights())
    draws = [head(inputs, training=True).numpy() for _ in range(2)]
    assert np.abs(draws[0] - draws[1]).min() > 0
    np.testing.assert_array_equal(other(inputs, training=True), draws[0])


def test_dropout_draws_anew_for_each_layer_and_block(rng):
    """A unit that is 1 survives two layers with the chance (1 - p)^2; each class has its own."""
    num_classes = 2050  # They are scored in blocks above 2,048.
    head = layers.ConcatHead(num_classes, units=(64, 64), dropout=0.5, seed=2, activation="linear")
    head.build((None, 4))
    mlp = head.interaction
    for weight in (*mlp.first, mlp.kernels[0]):
        weight.assign(tf.zeros_like(weight))
    mlp.biases[0].assign(tf.ones([64]))
    mlp.kernels[0].assign(tf.eye(64))
    weights = rng.normal(size=(64, 1)) + 1
    mlp.kernels[1].assign(weights)
    scores = head(np.zeros((1, 4), np.float32), training=True).numpy()[0]
    error = scores.std() / np.sqrt(num_classes)
    assert abs(scores.mean() - weights.sum()) < 5 * error
    assert len(np.unique(scores)) > 0.99 * num_classes


@pytest.mark.parametrize("head_class", [layers.LatentCrossHead, layers.ConcatHead])
def test_equal_kernels_start_unequal(head_class):
    head = head_class(5, units=(8, 8, 8))
    head.build((None, 8))
    kernels = [np.array(x) for x in (*head.interaction.first, *head.interaction.kernels[:2])]
    for one, other in itertools.combinations(kernels, 2):
        assert not np.array_equal(one, other)


def test_cosines_of_rows_whose_squares_overflow(rng):
    head, scale, rows = layers.CosineHead(3, scale=3.0), 1e30, rng.normal(size=[3, 4])
    head.build((None, 4))
    head.set_weights([rows * scale])
    h = tf.constant(rng.normal(size=[2, 4]), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(h)
        scores = head(h * scale)
    np.testing.assert_allclose(scores, cosine(head, float64(h)), rtol=1e-5)
    unit = float64(h) / np.linalg.norm(h, axis=1, keepdims=True)
    of_unit = 3 * (rows / np.linalg.norm(rows, axis=1, keepdims=True)).sum(axis=0)
    expected = of_unit - (unit @ of_unit)[:, None] * unit
    expected /= np.linalg.norm(h, axis=1, keepdims=True)
    np.testing.assert_allclose(tape.gradient(scores, h), expected, rtol=1e-4, atol=1e-5)
