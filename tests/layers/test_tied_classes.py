"""Classes of an existing layer: against its own scores and Keras's own steps."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import layers, losses, models, optimizers

from ..refused import refused
from ..rounding import assert_all_close

pytestmark = pytest.mark.slow

N, WIDTH, BATCH, TIME = 11, 4, 3, 5


def dense():
    layer = keras.layers.Dense(N, bias_initializer="random_normal")
    layer.build((None, WIDTH))
    return layer


def reversible(tie_weights):
    if not hasattr(keras.layers, "ReversibleEmbedding"):
        pytest.skip("This Keras has no ReversibleEmbedding.")
    return keras.layers.ReversibleEmbedding(N, WIDTH, tie_weights)


KINDS = {
    "embedding": lambda: keras.layers.Embedding(N, WIDTH),
    "dense": dense,
    "tied": lambda: reversible(True),
    "untied": lambda: reversible(False),
}


def own_scores(layer, x):
    if isinstance(layer, keras.layers.Dense):
        return layer(x)
    if type(layer) is keras.layers.Embedding:
        return tf.matmul(x, layer.embeddings, transpose_b=True)
    return layer(x, reverse=True)


@pytest.fixture(params=KINDS)
def layer(request):
    keras.utils.set_random_seed(0)
    return KINDS[request.param]()


@pytest.mark.keras2
def test_scores_are_those_of_the_layer(layer):
    classes = layers.TiedClasses(layer)
    assert (classes.num_classes, classes.width) == (N, WIDTH)
    x = tf.random.normal([BATCH, WIDTH])
    expected = own_scores(layer, x)
    assert_allclose(layers.DotProductHead(layer)(x), expected, rtol=1e-5, atol=1e-6)
    ids = tf.constant([[1, 7], [0, 1], [10, 3]])
    scores = tf.einsum("bd,bpd->bp", x, classes.rows(ids))
    if classes.biases() is not None:
        scores += classes.biases(ids)
    expected = tf.gather(expected, ids, batch_dims=1)
    assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)


def language_model(words):
    inputs = keras.Input((TIME,), dtype="int32")
    return keras.Model(inputs, keras.layers.Dense(WIDTH, "tanh")(words(inputs)))


OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.05),
    "sgd": lambda: keras.optimizers.SGD(0.5, momentum=0.5),
    "rowwise_adam": lambda: optimizers.RowwiseAdam(0.05),
    "rowwise_sgd": lambda: optimizers.RowwiseSGD(0.5, momentum=0.5),
    "rowwise_adagrad": lambda: optimizers.RowwiseAdagrad(0.5),
}


class Scores(keras.layers.Layer):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x):
        return own_scores(self.layer, x)


ROWS = {("tied", optimizer, "softmax") for optimizer in OPTIMIZERS}
ROWS |= {(kind, "rowwise_adam", "softmax") for kind in KINDS}
# The highest classes alone have a gradient: it is sparse, and so is that of the lookup.
ROWS |= {(kind, "adam", "top") for kind in ("embedding", "tied")}
ROWS |= {("embedding", optimizer, "top") for optimizer in OPTIMIZERS}


def top_loss():
    return losses.OrderedWeightedLoss("pairwise", "hinge", losses.TopKWeights(2))


@pytest.mark.parametrize("kind, optimizer, name", sorted(ROWS))
def test_steps_are_those_of_a_keras_model(kind, optimizer, name):
    """Gradients of the lookup and all classes meet in one table, where ids repeat."""
    x, y = np.random.default_rng(1).integers(0, N, (2, BATCH, TIME))
    results = []
    for by_blocks, run_eagerly in ((False, True), (True, True), (True, False)):
        keras.utils.set_random_seed(0)
        layer = KINDS[kind]()
        encoder = language_model(
            keras.layers.Embedding(N, WIDTH) if kind == "dense" else layer
        )
        if by_blocks:
            model = models.ExtremeClassifier(
                encoder, layer, WIDTH, None, normalize=False
            )
            loss = losses.SoftmaxLoss() if name == "softmax" else top_loss()
        else:
            model = keras.Sequential([encoder, Scores(layer)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            loss = loss if name == "softmax" else top_loss()
        model.compile(OPTIMIZERS[optimizer](), loss, run_eagerly=run_eagerly)
        model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
        results.append([*encoder.get_weights(), *layer.get_weights()])
        # An entry near 0 has the rounding of its row, whose entries are of about 1.
        assert_all_close(results[-1], results[0], 1e-4, 1e-5)


LOSSES = {
    "sampled": (4, losses.SoftmaxLoss),
    "rankmax": (None, losses.RankmaxLoss),
    "top": (None, top_loss),
}


TRAINED = [(kind, "sampled") for kind in ("embedding", "tied", "untied")]
TRAINED += [("embedding", "rankmax"), ("tied", "top"), ("dense", "top")]


@pytest.mark.parametrize("layer, name", TRAINED, indirect=["layer"])
def test_a_model_trains_saves_and_serves(layer, name, reloaded):
    num_sampled, loss = LOSSES[name]
    words = (
        keras.layers.Embedding(N, WIDTH)
        if isinstance(layer, keras.layers.Dense)
        else layer
    )
    encoder = language_model(words)
    model = models.ExtremeClassifier(
        encoder, layer, WIDTH, num_sampled, normalize=False
    )
    model.compile(optimizers.RowwiseAdam(0.1), loss())
    x, y = np.random.default_rng(1).integers(0, N, (2, 8, TIME))
    before = [np.array(w) for w in model.trainable_variables]
    model.fit(x, y, verbose=0)
    for old, new in zip(before, model.trainable_variables, strict=True):
        assert np.isfinite(new).all() and np.abs(new - old).max() > 0
    expected = model.top_k(x, 3)
    assert_array_equal(expected[1][..., 0], tf.argmax(own_scores(layer, model(x)), -1))
    again = reloaded(model)
    assert_all_close(again.top_k(x, 3), expected)
    number = sum(np.prod(w.shape) for w in model.trainable_variables)
    assert sum(np.prod(w.shape) for w in again.trainable_variables) == number


def test_other_layers_raise():
    made = [keras.layers.Dense(3), keras.layers.GRU(3), keras.layers.Dense(3, "relu")]
    made[2].build((None, 2))
    for layer in made:
        with refused(r"`layer` must be an Embedding without a soft cap"):
            layers.TiedClasses(layer)


def test_a_backbone_of_keras_hub_takes_the_steps_of_its_causal_lm():
    hub = pytest.importorskip("keras_hub")
    results = []
    x, y = np.random.default_rng(1).integers(1, 50, (2, BATCH, TIME))
    for by_blocks in (True, False):
        keras.utils.set_random_seed(0)
        backbone = hub.models.GPT2Backbone(
            50, 2, 2, 8, 16, dropout=0.0, max_sequence_length=TIME
        )
        inputs = {"token_ids": x, "padding_mask": np.ones_like(x)}
        if by_blocks:
            words = backbone.token_embedding
            model = models.ExtremeClassifier(backbone, words, 8, None, normalize=False)
            loss = losses.SoftmaxLoss()
        else:
            model = hub.models.GPT2CausalLM(backbone, preprocessor=None)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss)
        model.fit(inputs, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        results.append(backbone.get_weights())
    assert_all_close(*results, 1e-3, 1e-5)
