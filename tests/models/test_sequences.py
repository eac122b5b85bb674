"""Positions in training, judging and serving a model, beside the lists one by one."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import layers, losses, metrics, models, optimizers

from ..refused import assert_refused, refused, warned
from ..small_models import sequential, served

pytestmark = pytest.mark.slow

BATCH, TIME, N, DIM = 8, 5, 13, 4
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(BATCH, TIME, DIM)).astype("float32")
IS_THERE = np.arange(TIME) < np.arange(BATCH)[:, None] % TIME + 1
FEATURES[~IS_THERE] = 0
IDS = np.where(IS_THERE, RNG.integers(0, N, (BATCH, TIME)), -1)
ROWS = FEATURES[IS_THERE]
ROW_IDS = IDS[IS_THERE]


def encoder(shape=(TIME, DIM)):
    inputs = keras.Input(shape)
    x = keras.layers.Masking()(inputs) if len(shape) == 2 else inputs
    return keras.Model(inputs, keras.layers.Dense(DIM)(x))


def classifier(shape, classes=N, optimizer=None, loss=None, xla=False):
    keras.utils.set_random_seed(0)
    model = models.ExtremeClassifier(encoder(shape), classes, DIM, None, seed=1)
    optimizer = optimizer or optimizers.RowwiseSGD(0.5)
    loss = loss or losses.RankmaxLoss()
    model.compile(optimizer, loss, metrics=[metrics.NDCG(3)], jit_compile=xla)
    return model


def figures(model, x, y, epochs=3):
    history = model.fit(x, y, batch_size=len(x), epochs=epochs, verbose=0).history
    weights = [float(tf.reduce_sum(tf.sin(w))) for w in model.trainable_variables]
    return [*history["loss"], *model.evaluate(x, y, verbose=0), *weights]


# XLA is Keras 3's default on a GPU.
@pytest.mark.keras2
@pytest.mark.parametrize("case", ["unknown", "xla", "known"])
def test_training_is_that_of_the_lists(case):
    loss = losses.WeightedSumLoss([losses.SoftmaxLoss(), losses.RankmaxLoss()], [1, 2])
    shape = (TIME if case == "known" else None, DIM)
    xla = case == "xla"
    classes = 2_500 if xla else N  # Several blocks.
    found = figures(classifier(shape, classes, loss=loss, xla=xla), FEATURES, IDS)
    expected = figures(classifier((DIM,), classes, loss=loss), ROWS, ROW_IDS)
    assert_allclose(found, expected, rtol=1e-4)


def test_sizes_that_a_dataset_does_not_know():
    spec = (tf.TensorSpec([None, None, DIM]), tf.TensorSpec([None, None], tf.int32))
    data = tf.data.Dataset.from_generator(
        lambda: [(FEATURES, IDS)], output_signature=spec
    )
    data = data.apply(tf.data.experimental.assert_cardinality(1))
    model = classifier((None, DIM))
    other = classifier((None, DIM))
    found = model.fit(data, shuffle=False, verbose=0).history["loss"]
    assert_allclose(
        found, other.fit(FEATURES, IDS, verbose=0).history["loss"], rtol=1e-5
    )


def test_mixed_precision_trains_as_float32(mixed_precision):
    model = classifier((TIME, DIM))
    assert model(FEATURES).dtype == tf.float16 or model(FEATURES).dtype == tf.bfloat16
    with_half = model.fit(FEATURES, IDS, epochs=3, verbose=0).history["loss"]
    keras.mixed_precision.set_global_policy("float32")
    expected = (
        classifier((TIME, DIM)).fit(FEATURES, IDS, epochs=3, verbose=0).history["loss"]
    )
    assert_allclose(with_half, expected, rtol=2e-2)


def test_replicas_with_different_numbers_of_labels(two_devices):
    """A sum has no mean of means, and so is that of one device."""
    ids = np.where(np.arange(BATCH)[:, None] < BATCH // 2, IDS, -1)
    ids[-1, 0] = 3  # The second replica has a single label.

    def weights(strategy, reduction):
        with strategy.scope():
            loss = losses.SoftmaxLoss(reduction=reduction)
            model = classifier((TIME, DIM), loss=loss)
        batch = tf.data.Dataset.from_tensors((FEATURES, ids))
        model.fit(batch, shuffle=False, verbose=0)
        return np.concatenate([np.ravel(w) for w in model.get_weights()])

    for reduction, is_same in (("sum", True), ("sum_over_batch_size", False)):
        found = weights(two_devices, reduction)
        expected = weights(tf.distribute.get_strategy(), reduction)
        assert np.allclose(found, expected, atol=1e-5) == is_same


def test_classes_in_shards(two_devices):
    results = []
    for sharded in (True, False):
        with two_devices.scope():
            classes = layers.ShardedClassTable(
                N, DIM, optimizers.RowwiseSGD(0.5), seed=1
            )
            if not sharded:
                classes.build((None, DIM))
                classes = layers.ClassTable.from_rows(classes.rows())
            model = classifier((TIME, DIM), classes, loss=losses.SoftmaxLoss())
        data = tf.data.Dataset.from_tensors((FEATURES, IDS))
        model.fit(data, epochs=3, shuffle=False, verbose=0)
        results.append(model.top_k(FEATURES, 3, last=True))
    assert_allclose(results[0][0], results[1][0], rtol=1e-4)
    assert_array_equal(results[0][1], results[1][1])


@pytest.mark.keras2
@pytest.mark.parametrize("padding", ["labels", "mask"])
@pytest.mark.parametrize("xla", [False, True])
def test_padding_is_no_list_without_a_positive(padding, xla):
    """Of metrics that count such lists, beside the ranks of the rows that are there."""
    ids = IDS if padding == "labels" else np.where(IS_THERE, IDS, 3)
    table = layers.ClassTable(N, DIM)
    end = keras.layers.Dense(DIM)
    inner = encoder() if padding == "mask" else sequential((TIME, DIM), end)
    model = models.ExtremeClassifier(inner, table, DIM, None)
    ranked = [metrics.HitRate(3, count_empty=True, name="hits")]
    weighted = [metrics.HitRate(3, count_empty=True, name="weighted_hits")]
    loss = losses.SoftmaxLoss()
    model.compile(
        "sgd", loss, metrics=ranked, weighted_metrics=weighted, jit_compile=xla
    )
    weights = RNG.uniform(size=ids.shape).astype("float32")
    found = model.evaluate(FEATURES, ids, BATCH, 0, weights, return_dict=True)
    products = np.array(model.scores(model(FEATURES)))
    own = np.take_along_axis(products, np.maximum(ids, 0)[..., None], axis=2)
    is_hit = ((products > own).sum(axis=2) < 3)[IS_THERE]
    assert_allclose(found["hits"], np.mean(is_hit), rtol=1e-5)
    expected = np.average(is_hit, weights=weights[IS_THERE])
    assert_allclose(found["weighted_hits"], expected, rtol=1e-5)


@pytest.mark.keras2
@pytest.mark.parametrize("kind", ["head", "extreme"])
def test_an_evaluation_has_the_lists_that_are_there(kind, tmp_path):
    """The same rows as for the lists one by one; `compare` and `average` take them."""

    def model_of(shape, seed):
        keras.utils.set_random_seed(seed)
        if kind == "extreme":
            return models.ExtremeClassifier(encoder(shape), N, DIM, None, seed=seed)
        inner = encoder(shape)
        return keras.Model(inner.input, layers.DotProductHead(N)(inner.output))

    weights = RNG.uniform(size=IDS.shape).astype("float32")
    ranked = [metrics.NDCG(3, count_empty=True), metrics.MRR()]

    def evaluations(shape, *arrays):
        batches = tf.data.Dataset.from_tensor_slices(arrays).batch(3)
        return [r4c.evaluate(model_of(shape, seed), batches, ranked) for seed in (0, 1)]

    found = evaluations((TIME, DIM), FEATURES, IDS, weights)
    expected = evaluations((DIM,), ROWS, ROW_IDS, weights[IS_THERE])
    for one, other in zip(found, expected, strict=True):
        assert str(one) == str(other)
        assert f"\n{IS_THERE.sum()} lists" in str(one)
        assert_allclose(one.ranks, other.ranks)
        assert_array_equal(one.class_ids, ROW_IDS)
        if kind == "head":
            assert_array_equal(one.top_classes, other.top_classes)
        for name in ("mrr", "ndcg_at_3"):
            assert_allclose(one.values[name], other.values[name], rtol=1e-6)
            assert_allclose(one.weights[name], weights[IS_THERE])
    found[0].save(tmp_path / "lists.csv")
    assert len((tmp_path / "lists.csv").read_text().splitlines()) == 1 + IS_THERE.sum()
    assert str(r4c.compare(*found)) == str(r4c.compare(*expected))
    assert str(r4c.average(found)) == str(r4c.average(expected))


LAST = IS_THERE.sum(axis=1) - 1


def last_there(features):
    """The last position that is not padding, for an encoder that loses the mask."""
    return (
        tf.reduce_sum(tf.cast(tf.reduce_any(features != 0, axis=2), tf.int32), axis=1)
        - 1
    )


@pytest.mark.keras2
@pytest.mark.parametrize(
    "last", [True, LAST, last_there], ids=["mask", "positions", "function"]
)
def test_the_best_at_the_last_position(last, tmp_path):
    """Rows are padded; what `top_k` gives at all positions has the answer."""
    model = classifier((TIME, DIM))
    if last is not True:
        model = models.ExtremeClassifier(
            keras.layers.Dense(DIM), model.classes, DIM, None
        )
    _, everywhere = model.top_k(FEATURES, 3)
    expected = everywhere.numpy()[np.arange(BATCH), LAST]
    for compiled in (False, tf.function, lambda f: tf.function(f, jit_compile=True)):

        def best(features):
            return model.top_k(features, 3, last=last)

        _, found = (compiled(best) if compiled else best)(tf.constant(FEATURES))
        assert_array_equal(found, expected)
    if last is LAST:
        with refused("`last` must be True, False or a function"):
            model.export_top_k(
                tmp_path / "saved", tf.TensorSpec([None, TIME, DIM]), last=last
            )
        return
    model.export_top_k(
        tmp_path / "saved", tf.TensorSpec([None, TIME, DIM]), 3, last=last
    )
    assert_array_equal(served(tmp_path / "saved", FEATURES)["class_ids"], expected)


def test_the_last_position_of_encodings_without_a_mask():
    model = models.ExtremeClassifier(
        keras.layers.Dense(DIM), N, DIM, None, seed=1, name="items"
    )
    with warned("encodings of 'items' have no mask. Let all layers"):
        _, found = model.top_k(FEATURES, 3, last=True)
    assert_array_equal(found, model.top_k(FEATURES, 3)[1][:, -1])


@pytest.mark.parametrize("bad", [-1, TIME, 2**63])
def test_positions_out_of_range(bad):
    model = models.ExtremeClassifier(keras.layers.Dense(DIM), N, DIM, None, seed=1)
    places = np.where(np.arange(BATCH) == 2, bad, 0).astype(
        "int64" if bad < 2**63 else "uint64"
    )

    def scores(last):
        return model.top_k(FEATURES, 3, last=last)[0]

    rule = r"`last` must hold positions in \[0, 5\)"
    assert_refused(scores, rule, places)
    found = tf.function(scores, jit_compile=True)(tf.constant(places))
    assert_array_equal(np.isnan(found).any(axis=1), np.arange(BATCH) == 2)
    for other, message in (
        (np.zeros(BATCH), "`last` must hold integers"),
        (places[:3], r"`last` must hold a position for each sequence, \[batch\]"),
        (
            np.zeros((BATCH, 1), int),
            r"`last` must hold a position for each sequence, \[batch\]",
        ),
    ):
        with refused(message):
            scores(other)


def test_losses_are_tried_out_at_positions():
    examples = FEATURES, IDS

    def build(end):
        inner = encoder()
        return keras.Model(inner.input, end(inner.output))

    found = r4c.try_out(
        build,
        examples,
        examples,
        examples,
        candidates={"softmax": losses.SoftmaxLoss(), "rankmax": losses.RankmaxLoss()},
        settings=1,
        epochs=1,
        seeds=1,
        verbose=False,
    )
    assert "rankmax" in str(found)


def test_several_outputs_raise():
    model = classifier((TIME, DIM))
    with refused("class ids of one output"):
        model.test_on_batch(FEATURES, {"next": IDS})

    class Dict(keras.layers.Layer):
        def call(self, inputs):
            return {"encodings": inputs}

    model = models.ExtremeClassifier(Dict(), N, DIM, None)
    with refused(r"`encoder` must return one tensor\. Received: dict"):
        model(FEATURES)
