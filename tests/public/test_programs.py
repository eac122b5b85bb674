"""Programs in the shape of public ones, with one line changed: Keras's loss for ours.

Each is written anew, on data that it generates. A program is a function of the loss; it
returns the losses of its steps, which must be equal, and may return more.
"""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, models

from ..refused import refused, refused_in_graph, warned
from ..small_models import linear, sequential

pytestmark = pytest.mark.slow

BATCH, STEPS, LENGTH, WORDS, CLASSES = 8, 3, 6, 12, 5
EXAMPLES = BATCH * STEPS

SPARSE = keras.losses.SparseCategoricalCrossentropy
CATEGORICAL = keras.losses.CategoricalCrossentropy


class LossOfEachStep(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])


def fitted(model, x, y, loss, metrics=None, **options):
    """Losses of each step, as means since the first; a model that `fit` has trained."""
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=metrics)
    steps = LossOfEachStep()
    options = {"batch_size": BATCH, "shuffle": False, **options}
    history = model.fit(x, y, callbacks=[steps], verbose=0, **options)
    return steps.losses, history.history


def words(rng, first=0):
    """Rows of words that end in padding, 0."""
    rows = rng.integers(max(first, 1), WORDS, (EXAMPLES, LENGTH))
    lengths = rng.integers(2, LENGTH + 1, EXAMPLES)
    return np.where(np.arange(LENGTH) < lengths[:, None], rows, 0)


def of_a_text(rng, *head):
    """A classifier of texts: an embedding, a mean, a hidden layer."""
    return keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(WORDS, 8),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(8, activation="relu"),
            *head,
        ]
    )


def text_classification(rng, loss):
    model = of_a_text(rng, keras.layers.Dense(CLASSES))
    return fitted(model, words(rng), rng.integers(0, CLASSES, EXAMPLES), loss)[0]


def two_classes(rng, loss):
    model = of_a_text(rng, keras.layers.Dense(2))
    class_ids = rng.integers(0, 2, EXAMPLES)
    return fitted(model, words(rng), class_ids, loss, class_weight={0: 1.0, 1: 5.0})[0]


def one_score(rng, loss):
    """Labels 0 and 1 as `[batch, 1]` floats stay as they are."""
    model = of_a_text(rng, keras.layers.Dense(1))
    labels = rng.integers(0, 2, (EXAMPLES, 1)).astype("float32")
    return fitted(model, words(rng), labels, loss)[0]


def image_classification(rng, loss):
    model = sequential(
        (8, 8, 1),
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.MaxPooling2D(2),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.5, seed=0),
        keras.layers.Dense(CLASSES),
    )
    images = rng.integers(0, 256, (EXAMPLES, 8, 8, 1)).astype("float32")
    one_hot = keras.utils.to_categorical(rng.integers(0, CLASSES, EXAMPLES), CLASSES)
    return fitted(model, images, one_hot, loss)[0]


def structured_data(rng, loss):
    """Features by name, of a dataset, with weights of the examples."""
    inputs = {
        "age": keras.Input((1,), name="age"),
        "city": keras.Input((1,), name="city", dtype="int32"),
    }
    city = keras.layers.Flatten()(keras.layers.Embedding(4, 3)(inputs["city"]))
    hidden = keras.layers.Concatenate()([inputs["age"], city])
    model = keras.Model(inputs, keras.layers.Dense(CLASSES)(hidden))
    x = {
        "age": rng.normal(size=(EXAMPLES, 1)).astype("float32"),
        "city": rng.integers(0, 4, (EXAMPLES, 1)),
    }
    y = rng.integers(0, CLASSES, EXAMPLES)
    weights = rng.random(EXAMPLES).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(BATCH)
    return fitted(model, dataset, None, loss, batch_size=None)[0]


def time_series(rng, loss):
    model = sequential(
        (LENGTH, 2),
        keras.layers.Conv1D(4, 3, padding="same"),
        keras.layers.BatchNormalization(),
        keras.layers.ReLU(),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(CLASSES),
    )
    x = rng.normal(size=(EXAMPLES, LENGTH, 2)).astype("float32")
    y = rng.integers(0, CLASSES, (EXAMPLES, 1))  # As Keras's data sets have it.
    return fitted(model, x, y, loss, validation_split=0.25)[0]


def segmentation(rng, loss):
    """A class for each pixel, `[batch, height, width, 1]`."""
    model = sequential((4, 4, 3), keras.layers.Conv2D(CLASSES, 3, padding="same"))
    images = rng.normal(size=(EXAMPLES, 4, 4, 3)).astype("float32")
    masks = rng.integers(0, CLASSES, (EXAMPLES, 4, 4, 1))
    return fitted(model, images, masks, loss)[0]


def tagger():
    """A class for each word."""
    return keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(WORDS, 8),
            keras.layers.Dense(CLASSES),
        ]
    )


def named_entities(rng, loss):
    """A tag for each word; 0 is padding."""
    model = tagger()
    x = words(rng)
    tags = np.where(x > 0, rng.integers(1, CLASSES, x.shape), 0)
    return fitted(model, x, tags, loss)[0]


def labels_of_pytorch(rng, loss):
    """A tag for each first piece of a word; the other pieces are -100."""
    model = tagger()
    x = words(rng)
    is_first = rng.random(x.shape) < 0.5
    tags = np.where(is_first, rng.integers(0, CLASSES, x.shape), -100)
    return fitted(model, x, tags, loss)[0]


def translation(rng, loss):
    """From one sentence to another; a mask of the embedding leaves out padding."""
    source = keras.Input((LENGTH,), dtype="int32")
    target = keras.Input((LENGTH,), dtype="int32")
    state = keras.layers.GRU(8)(keras.layers.Embedding(WORDS, 8)(source))
    embedded = keras.layers.Embedding(WORDS, 8, mask_zero=True)(target)
    hidden = keras.layers.GRU(8, return_sequences=True)(embedded, initial_state=state)
    model = keras.Model([source, target], keras.layers.Dense(WORDS)(hidden))
    y = words(rng)
    following = np.pad(y[:, 1:], [(0, 0), (0, 1)])
    return fitted(model, [words(rng), y], following, loss)[0]


def generative(rng, loss):
    """The next word at each position, by causal attention; 0 is padding."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(WORDS, 8)(inputs)
    attention = keras.layers.MultiHeadAttention(2, 4)
    x += attention(x, x, use_causal_mask=True)
    model = keras.Model(inputs, keras.layers.Dense(WORDS)(x))
    rows = words(rng)
    following = np.pad(rows[:, 1:], [(0, 0), (0, 1)])
    return fitted(model, rows, following, loss)[0]


def masked_words(rng, loss):
    """Only words that were masked count, by their weights."""
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(WORDS + 1, 8),
            keras.layers.Dense(WORDS),
        ]
    )
    y = words(rng)
    is_masked = rng.random(y.shape) < 0.4
    x = np.where(is_masked, WORDS, y)
    weights = is_masked.astype("float32")
    return fitted(model, x, y, loss, sample_weight=weights)[0]


def word_encoder():
    """An encoding at each word, of the words up to it."""
    return keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(WORDS, 8),
            keras.layers.GRU(8, return_sequences=True),
        ]
    )


def large_vocabulary(rng, loss):
    """The next word: Keras's loss of the logits, or ours without them."""
    encoder = word_encoder()
    rows = words(rng)
    following = np.pad(rows[:, 1:], [(0, 0), (0, 1)])
    table = rng.normal(size=(WORDS, 8)).astype("float32")
    if isinstance(loss, SPARSE):
        logits = keras.layers.Dense(WORDS, use_bias=False)
        model = keras.Sequential([encoder, logits])
        logits.set_weights([table.T])
    else:
        classes = layers.ClassTable.from_rows(table)
        model = models.ExtremeClassifier(encoder, classes, 8, None, normalize=False)
    return fitted(model, rows, following, loss)[0]


def metric_learning(rng, loss):
    """Each anchor's positive is in its place of the batch, in a step of one's own."""

    class Similarities(keras.Model):
        def train_step(self, data):
            anchors, positives = data
            with tf.GradientTape() as tape:
                scores = tf.matmul(self(anchors), self(positives), transpose_b=True)
                value = self.compute_loss(y=tf.range(BATCH), y_pred=scores)
            gradients = tape.gradient(value, self.trainable_variables)
            self.optimizer.apply_gradients(
                zip(gradients, self.trainable_variables, strict=True)
            )
            return {"loss": value}

    inputs = keras.Input((4,))
    model = Similarities(
        inputs, keras.layers.UnitNormalization()(keras.layers.Dense(8)(inputs))
    )
    x = rng.normal(size=(EXAMPLES, 4)).astype("float32")
    y = x + 0.1 * rng.normal(size=x.shape).astype("float32")
    return fitted(model, x, y, loss)[0]


def in_batch_retrieval(rng, loss):
    """A model makes the labels of its own scores: `eye(n)` of an unknown size."""

    class Retrieval(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, *_, **__):
            scores = tf.matmul(y_pred, items_of(y), transpose_b=True)
            size = tf.shape(scores)[0]
            return loss(tf.eye(size, size), scores)

    items_of = keras.layers.Embedding(WORDS, 4)
    inputs = keras.Input((), dtype="int32")
    model = Retrieval(inputs, keras.layers.Embedding(9, 4)(inputs))
    users = rng.integers(0, 9, EXAMPLES)
    items = rng.integers(0, WORDS, EXAMPLES)
    dataset = tf.data.Dataset.from_tensor_slices((users, items)).batch(BATCH)
    return fitted(model, dataset, None, None, batch_size=None)[0]


def two_outputs(rng, loss):
    inputs = keras.Input((4,))
    outputs = {
        "kind": keras.layers.Dense(CLASSES, name="kind")(inputs),
        "price": keras.layers.Dense(1, name="price")(inputs),
    }
    model = keras.Model(inputs, outputs)
    x = rng.normal(size=(EXAMPLES, 4)).astype("float32")
    y = {"kind": rng.integers(0, CLASSES, EXAMPLES), "price": x[:, :1]}
    return fitted(model, x, y, {"kind": loss, "price": "mse"})[0]


def own_loop(rng, loss):
    """A loop with a tape, compiled by `tf.function`."""
    model = linear(4, CLASSES)
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )
        return value

    x = rng.normal(size=(EXAMPLES, 4)).astype("float32")
    y = rng.integers(0, CLASSES, EXAMPLES)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    return [float(step(*batch)) for batch in dataset]


# All programs, with the losses of those that have another pair.
PROGRAMS = [
    text_classification,
    two_classes,
    one_score,
    image_classification,
    structured_data,
    time_series,
    segmentation,
    named_entities,
    labels_of_pytorch,
    translation,
    generative,
    masked_words,
    large_vocabulary,
    metric_learning,
    in_batch_retrieval,
    two_outputs,
    own_loop,
]
PLAIN = SPARSE(from_logits=True), losses.SoftmaxLoss()
IGNORING = (
    SPARSE(from_logits=True, ignore_class=0),
    losses.SoftmaxLoss(ignore_class=0),
)
OTHERS = {
    image_classification: (
        CATEGORICAL(from_logits=True, label_smoothing=0.1),
        losses.SoftmaxLoss(label_smoothing=0.1),
    ),
    one_score: (
        keras.losses.BinaryCrossentropy(from_logits=True),
        losses.SigmoidCrossEntropyLoss(),
    ),
    named_entities: IGNORING,
    labels_of_pytorch: (
        SPARSE(from_logits=True, ignore_class=-100),
        losses.SoftmaxLoss(ignore_class=-100),
    ),
    translation: IGNORING,
    generative: IGNORING,
    large_vocabulary: IGNORING,
    in_batch_retrieval: (
        CATEGORICAL(from_logits=True),
        losses.SoftmaxLoss(label_format="relevance"),
    ),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda x: x.__name__)
def test_losses_are_equal_step_by_step(program):
    found = []
    for loss in OTHERS.get(program, PLAIN):
        keras.utils.set_random_seed(0)
        found.append(program(np.random.default_rng(0), loss))
    expected, steps = found
    assert len(steps) == STEPS or program is time_series
    assert expected[0] != expected[-1]
    assert_allclose(steps, expected, rtol=1e-5)


@pytest.mark.parametrize("head, classes", [("softmax", CLASSES), ("sigmoid", 1)])
def test_probabilities_are_told_of(head, classes, rng):
    """The most common last layers: the loss warns, or says what labels 0 and 1 need."""
    model = of_a_text(rng, keras.layers.Dense(classes, head))
    y = rng.integers(0, max(classes, 2), EXAMPLES)
    if classes > 1:
        with warned("should hold scores, not probabilities"):
            fitted(model, words(rng), y, losses.SoftmaxLoss())
        return
    with (
        warned("should hold scores, not probabilities"),
        warned(r"two scores, as of `Dense\(2\)`"),
        refused_in_graph(r"as of `Dense\(2\)`"),
    ):
        fitted(model, words(rng), y, losses.SoftmaxLoss())


def test_labels_made_in_a_model_need_their_format(rng):
    with refused("`label_format` must be 'ids' or 'relevance'"):
        in_batch_retrieval(rng, losses.SoftmaxLoss())


def test_metrics_of_probabilities(rng, normal):
    """Keras's AUC of two scores, by the recipe, is that of a softmax at the end."""

    class AUC(keras.metrics.AUC):
        def update_state(self, y_true, y_pred, sample_weight=None):
            probabilities = tf.nn.softmax(y_pred)[:, 1]
            return super().update_state(y_true, probabilities, sample_weight)

    scores = normal(200, 2)
    class_ids = rng.integers(0, 2, 200)
    of_scores, expected = AUC(), keras.metrics.AUC()
    of_scores.update_state(class_ids, scores)
    expected.update_state(class_ids, np.exp(scores)[:, 1] / np.exp(scores).sum(axis=1))
    assert_allclose(of_scores.result(), expected.result(), rtol=1e-6)

    # What the page says of Keras's own: it raises, or is wrong without a word.
    with refused("dimension"):
        keras.metrics.AUC().update_state(class_ids, scores)
    of_logits = keras.metrics.AUC(from_logits=True)
    of_logits.update_state(np.eye(2)[class_ids], scores)
    assert float(of_logits.result()) != pytest.approx(float(expected.result()), 1e-3)


def language_model(rng, **options):
    """A large vocabulary, without its logits, and the same with them."""
    encoder = word_encoder()
    model = models.ExtremeClassifier(
        encoder, layers.ClassTable(WORDS, 8), 8, num_sampled=None, normalize=False
    )
    model.compile(keras.optimizers.Adam(0.01), **options)
    return model


def test_a_large_vocabulary_reports_metrics_and_perplexity(rng):
    rows = words(rng)
    following = np.pad(rows[:, 1:], [(0, 0), (0, 1)])
    top = metrics.TopKAccuracy([1, 5], name="top")
    model = language_model(
        rng,
        loss=losses.SoftmaxLoss(ignore_class=0),
        metrics=[top],
        metrics_in_training=True,
    )
    options = {"shuffle": False, "verbose": 0, "batch_size": EXAMPLES}
    logits = model.scores(model(rows)).numpy()
    history = model.fit(rows, following, **options).history
    is_word = following > 0
    best = logits.argsort(axis=-1)[..., ::-1]
    for k in (1, 5):
        is_hit = (best[..., :k] == following[..., None]).any(axis=-1)
        assert history[f"top_at_{k}"][0] == pytest.approx(is_hit[is_word].mean())
    probabilities = tf.nn.softmax(logits).numpy()
    chosen = np.take_along_axis(probabilities, following[..., None], -1)[..., 0]
    expected = np.exp(-np.log(chosen)[is_word].mean())
    assert_allclose(np.exp(history["loss"][0]), expected, rtol=1e-5)


def test_words_are_generated_from_the_best(rng):
    """Greedily by `top_k` and by scores, and drawn from the scores of the best."""
    model = language_model(rng, loss=losses.SoftmaxLoss(ignore_class=0))
    rows = words(rng)
    position = LENGTH - 2
    scores = model.scores(model(rows))[:, position]
    best, ids = model.top_k(rows, 3, last=np.full(EXAMPLES, position))
    assert_allclose(best, tf.math.top_k(scores, 3)[0], rtol=1e-5)
    np.testing.assert_array_equal(ids[:, 0], tf.argmax(scores, axis=-1))
    drawn = tf.random.categorical(best, 100, seed=1)
    shares = tf.reduce_mean(tf.one_hot(drawn, 3), axis=[0, 1])
    expected = tf.reduce_mean(tf.nn.softmax(best), axis=0)
    assert_allclose(shares, expected, atol=0.03)
