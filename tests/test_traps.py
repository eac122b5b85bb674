"""Mistakes of a first day, which must not pass in silence."""

import contextlib
import re

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

from rank4class_tf import _keras, layers, losses, metrics

from .contract.tables import LOSSES
from .refused import refused, refused_in_graph, warned
from .small_models import linear, sequential

NUM_CLASSES = 10


def small_model(**compiled):
    return linear(4, NUM_CLASSES, **compiled)


@pytest.fixture
def features(normal):
    return normal(8, 4)


@pytest.fixture
def ids():
    return np.array([0, 1, 2, 3, 10, 1, 2, 3])  # Ids from 1 on, of ten classes.


def padded(ids):
    return np.stack([ids, np.full(len(ids), -1)], axis=1)


def ragged(ids):
    return tf.RaggedTensor.from_row_lengths(ids, np.ones(len(ids), int))


@pytest.mark.keras2
@pytest.mark.parametrize("form", [np.asarray, padded, ragged])
def test_ids_outside_raise_in_fit(features, ids, form):
    model = small_model(loss=losses.RankmaxLoss())
    dataset = tf.data.Dataset.from_tensors((features, form(ids)))
    message = r"`y_true` must hold class ids in \[0, 10\), or -1 for padding, "
    message += r".*Received:\] \[10\]"
    with refused_in_graph(message):
        model.fit(dataset, verbose=0, shuffle=False)
    # A loss that takes any labels: of two that raise, either error would be reported.
    model = small_model(
        loss=lambda _, scores: tf.reduce_mean(scores), metrics=[metrics.MRR()]
    )
    with refused_in_graph(message):
        model.evaluate(dataset, verbose=0)


def test_relevance_that_is_wrong_raises_in_fit(features):
    labels = np.ones((8, NUM_CLASSES), "float32")
    model = small_model(loss=losses.SoftmaxLoss(max_positives=2))
    with refused_in_graph(r"max_positives=2 .* \[10 10"):
        model.fit(features, labels, verbose=0)
    labels[3, 4] = np.nan
    model = small_model(loss=losses.SoftmaxLoss())
    with refused_in_graph(r"finite relevance.* \[nan\]"):
        model.fit(features, labels, verbose=0)


def test_under_a_strategy_ids_outside_raise_and_a_softmax_warns(
    features, ids, two_devices
):
    with two_devices.scope():
        model = small_model(loss=losses.RankmaxLoss())
        probabilities = ending_in("argument")
        probabilities.compile("sgd", loss=losses.SoftmaxLoss())
    with refused_in_graph(r"class ids in \[0, 10\).* \[10\]"):
        model.fit(features, ids, verbose=0)
    with warned("not probabilities"):
        probabilities.fit(features, ids % NUM_CLASSES, verbose=0)


def test_ids_outside_raise_in_loops_and_branches(ids, normal):
    scores = normal(8, 10)
    loss = losses.SoftmaxLoss()
    inner = tf.function(loss)

    def loop(ids, steps, loss=loss):
        total = tf.constant(0.0)
        for _ in tf.range(steps):
            total += loss(ids, scores)
        return total

    def branch(ids, counts):
        return loss(ids, scores) if counts else tf.constant(0.0)

    for function, taken, other in (
        (tf.function(loop), 2, 0),
        (tf.function(branch), True, False),
    ):
        with refused_in_graph("must hold class ids"):
            function(tf.constant(ids), tf.constant(taken))
        assert function(tf.constant(ids), tf.constant(other)) == 0
    inner(ids % 10, scores)  # Traced before, for a graph that is not compiled.
    compiled = tf.function(lambda ids: loop(ids, 2, inner), jit_compile=True)
    assert np.isnan(compiled(tf.constant(ids)))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_ids_that_half_precision_does_not_hold_raise(dtype, normal):
    """2,049 is 2,048 in float16."""
    scores = normal(2, 3000)
    for make in (losses.SoftmaxLoss, metrics.MRR):
        with refused(f"integer dtype .* Received: {dtype.name}"):
            make()(tf.cast([1, 2049], dtype), scores)
    signature = [tf.TensorSpec([None], dtype), tf.TensorSpec([None, None])]
    loss = tf.function(losses.SoftmaxLoss(), input_signature=signature)
    exact = tf.cast([1, 255], dtype)
    assert_allclose(loss(exact, scores), losses.SoftmaxLoss()([1, 255], scores))
    with refused_in_graph("class ids"):
        loss(tf.cast([1, 2049], dtype), scores)


@pytest.mark.keras2
def test_floating_ids_of_many_classes_in_mixed_precision():
    """Keras 2 casts floating labels to the dtype of the scores."""
    dense = keras.layers.Dense(3000, dtype="mixed_float16")
    model = sequential((4,), dense)
    # Only the right class scores high; another would have a loss of 20.
    dense.set_weights([np.zeros((4, 3000)), 20.0 * np.eye(3000)[2049]])
    features = np.ones((2, 4), "float32")
    ids = np.array([2049, 2049])
    for labels in (ids, ids.astype("float32")):
        model.compile("sgd", loss=losses.SoftmaxLoss())
        if _keras.KERAS_3 or labels is ids:
            assert model.evaluate(features, labels, verbose=0) < 1e-3
        else:
            with refused("must hold class ids of an integer dtype"):
                model.evaluate(features, labels, verbose=0)


@contextlib.contextmanager
def warns_once(message):
    with warned(message) as seen:
        yield
    assert len([w for w in seen if re.search(message, str(w.message))]) == 1


def in_mode(name):
    """What `compile` takes to run eagerly, in a graph, or under XLA."""
    graph = {"jit_compile": False} if _keras.KERAS_3 else {}
    modes = {"eager": {"run_eagerly": True}, "xla": {"jit_compile": True}}
    return modes.get(name, graph)


SHAPES = {"lists": (4,), "positions": (4, 3), "images": (2, 2, 3)}


def ending_in(how, place="lists"):
    """A model that ends in probabilities `[..., NUM_CLASSES]`."""
    scores = keras.layers.Dense(NUM_CLASSES)
    softmax = keras.layers.Dense(NUM_CLASSES, activation="softmax")
    last = {
        "argument": [softmax],
        "sigmoid": [keras.layers.Dense(NUM_CLASSES, activation="sigmoid")],
        "layer": [scores, keras.layers.Softmax()],
        "dropout": [softmax, keras.layers.Dropout(0.5)],
        "mask": [keras.layers.Masking(), softmax],
        "masked activation": [
            keras.layers.Masking(),
            scores,
            keras.layers.Activation("softmax"),
        ],
        "time distributed": [
            keras.layers.Masking(),
            keras.layers.TimeDistributed(softmax),
        ],
        "half precision": [
            scores,
            keras.layers.Activation("softmax", dtype="mixed_float16"),
        ],
        "reshaped": [
            softmax,
            keras.layers.Reshape((2, 2, NUM_CLASSES)),
            keras.layers.Reshape((4, NUM_CLASSES)),
        ],
        "inner model": [keras.Sequential([softmax])],
        "last position": [softmax, keras.layers.Lambda(lambda x: x[:, -1])],
        "convolution": [keras.layers.Conv2D(NUM_CLASSES, 1, activation="softmax")],
    }
    return sequential(SHAPES[place], *last[how])


AT_POSITIONS = [
    "sigmoid",
    "layer",
    "masked activation",
    "time distributed",
    "half precision",
    "reshaped",
    "inner model",
    "last position",
]
ENDS = [
    ("argument", "lists", "eager"),
    ("half precision", "lists", "eager"),
    *((how, "lists", "graph") for how in ("layer", "sigmoid", "dropout")),
    *((how, "positions", "eager") for how in ("argument", "layer")),
    *((how, "positions", "graph") for how in ("argument", "mask", *AT_POSITIONS)),
    ("argument", "positions", "xla"),
    *(("convolution", "images", mode) for mode in ("eager", "graph")),
]


@pytest.mark.keras2
@pytest.mark.often("lists", "mask", "xla")
@pytest.mark.parametrize("how, place, mode", ENDS)
def test_a_softmax_at_the_end_warns_once(how, place, mode, rng, normal):
    model = ending_in(how, place)
    loss = losses.SoftmaxLoss(label_format="ids")
    model.compile("sgd", loss=loss, **in_mode(mode))
    features = normal(8, *SHAPES[place])
    labels = rng.integers(0, NUM_CLASSES, (8, *model.output_shape[1:-1]))
    # In an evaluation alone, dropout does nothing.
    uses = ["evaluate"] * 3 if how == "dropout" else ["fit", "fit", "evaluate"]
    with warns_once("`y_pred` should hold scores, not probabilities"):
        for use in uses:
            getattr(model, use)(features, labels, batch_size=4, verbose=0)


def test_a_softmax_with_a_mask_of_items_warns(rng, normal):
    """Keras's `Softmax` fills the items that its mask leaves out with 0."""
    scores = tf.constant(normal(4, NUM_CLASSES))
    is_item = tf.constant(rng.random((4, NUM_CLASSES)) < 0.8)
    softmax = keras.layers.Softmax()

    @tf.function
    def step(scores, is_item):
        return losses.SoftmaxLoss()([1, 2, 3, 4], softmax(scores, mask=is_item))

    with warned("not probabilities"):
        step(scores, is_item)


def of_any_shape(rng, *shape, dtype="float32"):
    return rng.normal(size=(*shape, NUM_CLASSES)).astype(dtype)


@pytest.mark.parametrize("shape", [(6,), (3, 2), (3, 2, 2)])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16])
def test_every_eager_batch_is_judged(shape, dtype, rng):
    """What came before neither clears a loss nor spends its warning."""
    loss = losses.SoftmaxLoss(label_format="ids")
    ids = rng.integers(0, NUM_CLASSES, shape)
    scores = of_any_shape(rng, *shape)
    for harmless in (scores, scores[:0], of_any_shape(rng, 8)):
        loss(np.resize(ids, harmless.shape[:-1]), harmless)
    probabilities = tf.cast(tf.nn.softmax(scores), dtype)
    with warned("the output of a softmax") as seen:
        for _ in range(2):
            loss(ids, probabilities)
    assert len(seen) == 1


def test_an_eager_call_with_scores_does_not_clear_later_graphs(rng):
    loss = losses.RankmaxLoss()
    scores = of_any_shape(rng, 4)
    loss([1, 2, 3, 4], scores)
    with warned("the output of a sigmoid"):
        tf.function(lambda x: loss([1, 2, 3, 4], tf.sigmoid(x)))(scores)


@pytest.mark.keras2
def test_what_is_no_softmax_does_not_warn(rng):
    """A warning is an error in these tests."""
    scores = of_any_shape(rng, 4)
    ids = [1, 2, 3, 4]
    loss = losses.SoftmaxLoss()
    probabilities = tf.nn.softmax(scores).numpy()
    one_is_none, one_is_masked, first_is_negative = np.copy([probabilities] * 3)
    one_is_none[2] = scores[2]
    one_is_masked[:, 5] = -np.inf
    first_is_negative[0, 0] *= -1
    no_softmax = [
        scores,
        np.eye(NUM_CLASSES)[:4],
        np.abs(scores),
        scores[:0],
        probabilities[:0],
        one_is_none,
        one_is_masked,
        first_is_negative,
    ]
    for x in no_softmax:
        loss(ids[: len(x)], x)
        loss(np.reshape(ids[: len(x)], (-1, 2)), np.reshape(x, (-1, 2, NUM_CLASSES)))
    losses.SigmoidCrossEntropyLoss(label_format="ids")([0] * 4, np.ones([4, 1]))
    loss([0], [[0.7, 0.305]])  # Two cosines, whose sum is near 1 by chance.
    for of_scores in (tf.nn.log_softmax, lambda x: 10 * tf.nn.softmax(x)):
        tf.function(lambda x, f=of_scores: losses.RankmaxLoss()(ids, f(x)))(scores)
    # These may be probabilities.
    losses.MeanSquaredLoss()(ids, probabilities)
    metrics.NDCG()(ids, probabilities)


WAY_OUT = (
    r"`Dense\(2\)`, and class ids; or `SigmoidCrossEntropyLoss` and floating labels"
)


@pytest.mark.keras2
@pytest.mark.often("graph", "eager")
@pytest.mark.parametrize("shape", [(), (3,)], ids=["examples", "positions"])
@pytest.mark.parametrize("mode", ["graph", "eager", "xla"])
def test_one_score_warns_once_of_a_loss_that_compares(mode, shape, rng, normal):
    """Its loss is 0 for ever. What is of each score by itself trains."""
    labels = rng.integers(0, 2, (8, *shape, 1)).astype("float32")
    features = normal(8, *shape, 4)
    options = in_mode(mode)
    model = linear(
        *shape, 4, 1, loss=losses.SoftmaxLoss(label_format="relevance"), **options
    )
    with warns_once(WAY_OUT):
        history = [
            model.fit(features, labels, verbose=0).history["loss"] for _ in range(2)
        ]
    assert history == [[0.0], [0.0]]
    for loss in (losses.SigmoidCrossEntropyLoss, losses.MeanSquaredLoss):
        model.compile("sgd", loss(), **options)
        assert model.fit(features, labels, verbose=0).history["loss"][0] > 0


OF_LISTS = {case.loss: case.make for case in LOSSES if case.options.get("k", 1) == 1}
OF_LISTS |= {
    losses.ForwardCorrectionLoss: lambda: losses.ForwardCorrectionLoss([[1.0]])
}
OF_LISTS[losses.WeightedSumLoss] = lambda: losses.WeightedSumLoss(
    [losses.SigmoidCrossEntropyLoss(), losses.RankmaxLoss()], [1.0, 1.0]
)


@pytest.mark.filterwarnings("ignore:num_sampled=")
@pytest.mark.parametrize("loss", OF_LISTS)
def test_which_losses_warn_of_one_score(loss):
    """All but those of each item by itself; a sum of losses does if one does."""
    is_pointwise = loss in (
        losses.SigmoidCrossEntropyLoss,
        losses.MeanSquaredLoss,
    )
    warns = warned(WAY_OUT)
    with contextlib.nullcontext() if is_pointwise else warns:
        OF_LISTS[loss]()([[1.0]], [[0.5]])


def test_an_all_classes_model_of_one_class_warns():
    head = layers.DotProductHead(1)
    encodings = tf.ones([2, 3])
    head(encodings)
    with warned(WAY_OUT):
        losses.SoftmaxLoss()([0, 0], head.over_classes(encodings))


@pytest.mark.keras2
@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_labels_0_and_1_of_one_score_name_the_way_out(shape, dtype):
    """Labels `[batch, 1]` of a floating dtype are those of the item."""
    labels = np.array([0, 1, 1, 0], dtype).reshape(shape)
    scores = np.ones((4, 1), "float32")
    loss = losses.SigmoidCrossEntropyLoss()
    for call in (loss, tf.function(loss)):
        if dtype == np.float32 and shape == (4, 1):
            call(labels, scores)
            continue
        error = (ValueError, tf.errors.InvalidArgumentError)
        with pytest.raises(
            error, match=rf"class ids in \[0, 1\), or -1 for padding.*{WAY_OUT}"
        ):
            call(labels, scores)


@pytest.mark.keras2
def test_class_weight_is_that_of_keras_for_ids(features, rng):
    ids = rng.integers(0, NUM_CLASSES, 8)
    weights = {0: 3.0, 1: 0.5, 4: 2.0, 7: 0.0}
    every = {c: weights.get(c, 1.0) for c in range(NUM_CLASSES)}
    histories = []
    for of_loss, of_fit in ((None, every), (weights, None)):
        keras.utils.set_random_seed(1)
        model = small_model(loss=losses.SoftmaxLoss(class_weight=of_loss))
        fitted = model.fit(features, ids, epochs=3, class_weight=of_fit, verbose=0)
        histories.append(fitted.history["loss"])
    assert_allclose(*histories, rtol=1e-5)


def test_class_weight_is_of_all_classes_and_saved(reloaded, features):
    for wrong in ([1.0] * 9, {10: 2.0}):
        model = small_model(loss=losses.SoftmaxLoss(class_weight=wrong))
        with refused(r"`class_weight` must hold .* for 10 classes"):
            model.fit(features, np.zeros(8, int), verbose=0)
    for given in ({2: 3.0}, [1.0] * NUM_CLASSES):
        model = small_model(loss=losses.SoftmaxLoss(class_weight=given))
        assert reloaded(model).loss.class_weight == given


class Stacked(keras.layers.Layer):
    """Logits beside one probability."""

    def call(self, x):
        return tf.stack([tf.sigmoid(x[:, 0]), x[:, 1], x[:, 2]], axis=-1)


class SomeSquashed(keras.layers.Layer):
    def call(self, x):
        return tf.where(x > 0, tf.sigmoid(x), x)


class OverTheBatch(keras.layers.Layer):
    def call(self, x):
        return tf.transpose(tf.nn.softmax(tf.transpose(x)))


@pytest.mark.parametrize("layer", [Stacked, SomeSquashed, OverTheBatch])
def test_a_function_of_some_scores_does_not_warn(layer):
    model = sequential((3,), keras.layers.Dense(3), layer())
    model.compile("sgd", losses.SoftmaxLoss())
    model.fit(np.eye(3), np.arange(3), verbose=0)  # Warnings are errors here.


def test_a_softmax_of_half_precision_warns_after_a_cast():
    scores = np.random.default_rng(0).normal(size=(8, 100)).astype("float16")
    probabilities = tf.cast(tf.nn.softmax(scores), tf.float32)
    with warned("the output of a softmax"):
        losses.SoftmaxLoss()(np.arange(8), probabilities)
