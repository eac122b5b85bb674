"""Positions: every object gives at `[batch, time, ...]` what it gives list by list."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _keras, layers, losses, metrics, models, optimizers

from .. import derivatives
from ..refused import assert_refused, refused, refused_in_any_mode
from ..rounding import assert_all_close
from . import tables
from .head_table import HEADS
from .test_steps import EVERY, RATE, assert_close, changes_of_step, gradients_in_float64

BATCH, TIME, N, DIM = 3, 4, 6, 5
MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]], bool)
DETERMINISTIC = [case for case in tables.LOSSES if not case.random]


@pytest.fixture
def scores(normal):
    return normal(BATCH, TIME, N)


@pytest.fixture
def ids(rng):
    """Class ids, one position of which is padding."""
    ids = rng.integers(0, N, (BATCH, TIME))
    ids[2, 1] = -1
    return ids


def masked(x, mask=MASK):
    """A tensor with a mask, as a layer of Keras returns it."""
    x = tf.identity(x)
    x._keras_mask = tf.constant(mask)
    return x


def labels_of(form, ids, rng):
    if form == "several ids":
        several = np.stack([ids, (ids + 1) % N, np.full_like(ids, -1)], axis=-1)
        return np.where(ids[..., None] >= 0, several, -1)
    if form == "relevance":
        relevance = rng.integers(0, 3, (*ids.shape, N)).astype("float32")
        relevance[..., 0] = 1
        return np.where(ids[..., None] >= 0, relevance, -1)
    return ids


def value_and_gradient(loss, labels, scores):
    def of_scores(x):
        return loss(labels, masked(x) if x.shape.rank == 3 else x)

    return [x.numpy() for x in derivatives.value_and_gradient(of_scores, scores)]


@pytest.mark.parametrize("form", ["ids", "several ids", "relevance"])
@pytest.mark.parametrize("case", DETERMINISTIC)
@pytest.mark.base(tables.FORMULAS)
def test_a_loss_is_the_mean_over_positions_that_are_there(case, form, scores, ids, rng):
    """Of padding and masked positions, even NaN scores change nothing."""
    labels = labels_of(form, ids, rng)
    there = MASK & (ids >= 0)
    broken = np.where(there[..., None], scores, np.nan)
    value, gradient = value_and_gradient(case.make(), labels, broken)
    expected, of_lists = value_and_gradient(case.make(), labels[there], scores[there])
    assert_allclose(value, expected, rtol=1e-5)
    assert_allclose(gradient[there], of_lists, rtol=1e-4, atol=1e-6)
    assert_array_equal(gradient[~there], 0)


def test_a_random_loss_takes_one_step_for_all_positions(scores, ids):
    ids = np.abs(ids)
    for case in (case for case in tables.LOSSES if case.random):
        flat = case.make()(ids.reshape(-1), scores.reshape(-1, N))
        assert_allclose(case.make()(ids, scores), flat, rtol=1e-5)


WEIGHTS = {
    "none": lambda rng: None,
    "a number": lambda rng: 0.5,
    "positions": lambda rng: rng.uniform(size=(BATCH, TIME)).astype("float32"),
    "sequences": lambda rng: rng.uniform(size=(BATCH, 1)).astype("float32"),
}
REDUCTIONS = ["sum_over_batch_size", "sum"]
REDUCTIONS += ["mean", "mean_with_sample_weight"] if _keras.KERAS_3 else []


@pytest.mark.keras2
@pytest.mark.parametrize("over_classes", [False, True], ids=["scores", "by blocks"])
@pytest.mark.parametrize("has_mask", [False, True], ids=["all", "mask"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_softmax_is_the_cross_entropy_of_keras(
    weights, reduction, has_mask, over_classes, rng, normal
):
    ids = rng.integers(0, N, (BATCH, TIME))
    encodings = tf.constant(normal(BATCH, TIME, DIM))
    head = layers.DotProductHead(N)
    mask = masked if has_mask else tf.identity
    scores = mask(head(encodings))
    given = weight = WEIGHTS[weights](rng)
    if weight is not None:  # Keras 3 divides by weights that it has not broadcast.
        weight = np.broadcast_to(weight, ids.shape).astype("float32")
    ours = head.over_classes(mask(encodings)) if over_classes else scores
    of_keras = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=reduction
    )
    expected = of_keras(ids, scores, weight)
    found = losses.SoftmaxLoss(reduction=reduction)(ids, ours, given)
    assert_allclose(found, expected, rtol=1e-5)


def test_padding_is_what_keras_ignores(scores, ids):
    ignores = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=-1
    )
    assert_allclose(losses.SoftmaxLoss()(ids, scores), ignores(ids, scores), rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["softmax", "rankmax", "pairwise_logistic_lambda", "list_mle"]
)
@pytest.mark.parametrize(
    "mode", ["eager", "graph", pytest.param("xla", marks=pytest.mark.slow)]
)
def test_all_classes_at_all_positions(name, mode, ids, normal):
    """Value and gradients of the matrix of scores, also for unknown sizes."""
    head = layers.DotProductHead(N)
    loss = EVERY[name]()
    encodings = tf.constant(normal(BATCH, TIME, DIM))
    head(encodings)

    def step(ids, encodings, over_classes=True):
        def value():
            x = encodings if mode == "xla" else masked(encodings)
            return loss(ids, head.over_classes(x) if over_classes else head(x))

        return derivatives.with_gradients(value, encodings, *head.trainable_variables)

    expected = step(ids, encodings, over_classes=False)
    if mode != "eager":
        shapes = [None, None] if mode == "graph" else [BATCH, TIME]
        specs = [tf.TensorSpec(shapes, tf.int64), tf.TensorSpec([*shapes, DIM])]
        step = tf.function(step, specs, jit_compile=mode == "xla")
    assert_all_close(step(tf.constant(ids), encodings), expected, 1e-4, 1e-6)


@pytest.mark.parametrize("form", ["ids", "several ids", "relevance"])
@pytest.mark.parametrize("case", tables.METRICS)
def test_a_metric_counts_the_positions_that_are_there(case, form, scores, ids, rng):
    labels = labels_of(form, ids, rng)
    there = MASK & (ids >= 0)
    weights = rng.uniform(size=(BATCH, 1)).astype("float32")
    found = case.make()(
        labels, masked(np.where(there[..., None], scores, np.nan)), weights
    )
    of_lists = np.repeat(weights, TIME, axis=1)[there]
    expected = case.make()(labels[there], scores[there], of_lists)
    assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in HEADS if name != "dropout"])
def test_a_head_scores_each_position(name, normal):
    encodings = normal(BATCH, TIME, 4)
    head = HEADS[name]()
    found = head(masked(encodings))
    flat = head(encodings.reshape(-1, 4))
    assert_allclose(tf.reshape(found, flat.shape), flat, rtol=1e-5, atol=1e-6)
    assert_array_equal(found._keras_mask, MASK)
    assert tuple(head.compute_output_shape((None, TIME, 4))) == (None, TIME, 5)


# Models.

WORDS = 30


def words(rng, batch=8, time=6):
    """Sequences of words, each the one before plus a step, padded at the end."""
    start = rng.integers(0, WORDS, (batch, 1))
    lengths = rng.integers(2, time + 2, (batch, 1))
    ids = (start + 3 * np.arange(time + 1)) % WORDS
    ids = np.where(np.arange(time + 1) < lengths, ids, -1)
    return ids[:, :-1], ids[:, 1:]


def sequence_model(loss, num_sampled=None, optimizer=None, normalize=False):
    """One table for the words that are read and for those that are scored."""
    keras.utils.set_random_seed(0)
    table = layers.ClassTable(WORDS, DIM)
    inputs = keras.Input((None,), dtype="int32")
    x = layers.ClassEmbedding(table)(inputs)
    encoder = keras.Model(inputs, keras.layers.Dense(DIM, use_bias=False)(x))
    model = models.ExtremeClassifier(
        encoder, table, DIM, num_sampled, normalize, seed=1
    )
    ranked = [metrics.NDCG(3), metrics.HitRate(2, name="hits")]
    model.compile(optimizer or optimizers.RowwiseSGD(0.5), loss, metrics=ranked)
    return model


@pytest.mark.keras2
@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", ["softmax", "rankmax", "pairwise_logistic"])
def test_a_step_of_one_table_at_both_ends_equals_float64(name, jit_compile, rng):
    inputs, targets = words(rng)
    is_there = (inputs >= 0) & (targets >= 0)
    model = sequence_model(EVERY[name](), optimizer=optimizers.RowwiseSGD(RATE))

    def loss(*weights):
        by_shape = {tuple(w.shape): w for w in weights}
        table = by_shape[WORDS, DIM]
        kernel = by_shape[DIM, DIM]
        encodings = tf.gather(table, np.maximum(inputs, 0)) @ kernel
        scores = tf.linalg.matmul(
            tf.boolean_mask(encodings, is_there), table, transpose_b=True
        )
        return EVERY[name]()(targets[is_there], scores)

    expected = gradients_in_float64(loss, model.trainable_variables)
    found = changes_of_step(model, (inputs, targets), "xla" if jit_compile else "graph")
    assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.keras2
@pytest.mark.parametrize("num_sampled", [None, 10], ids=["all", "sampled"])
def test_a_model_of_sequences(num_sampled, rng, reloaded):
    """It learns and ranks each position; a file keeps it."""
    inputs, targets = words(rng, 64)
    model = sequence_model(
        losses.SoftmaxLoss(), num_sampled, optimizers.RowwiseAdam(0.03)
    )
    model.fit(inputs, targets, batch_size=16, epochs=30, verbose=0)
    found = model.evaluate(inputs, targets, batch_size=7, verbose=0, return_dict=True)
    assert found["hits"] > 0.8
    encodings = model.predict(inputs, verbose=0)
    table = np.array(model.classes.embeddings)
    is_there = (inputs >= 0) & (targets >= 0)
    products = np.where(is_there[..., None], encodings @ table.T, 0)
    own = np.take_along_axis(products, np.maximum(targets, 0)[..., None], 2)
    rank = 1 + (products > own).sum(2)
    assert found["hits"] == pytest.approx(np.mean(rank[is_there] <= 2), abs=1e-6)
    above, _ = model.ranks(inputs, targets)
    assert_array_equal(
        np.where(is_there, above.numpy()[..., 0] + 1, 0), rank * is_there
    )
    scores, ids = model.top_k(inputs, 3)
    assert scores.shape == ids.shape == (*inputs.shape, 3)
    if _keras.KERAS_3:
        loaded = reloaded(model)
        assert_array_equal(loaded.top_k(inputs, 3)[1], ids)
        assert len(loaded.trainable_variables) == 2  # One table.


def test_calibrate_and_conformalize_at_positions(rng, normal):
    inputs = keras.Input((None, DIM))
    model = keras.Model(
        inputs, layers.DotProductHead(N)(keras.layers.Masking()(inputs))
    )
    features = normal(8, TIME, DIM)
    features[:, 2:] = 0
    best = tf.argmax(model(features), axis=-1).numpy()
    ids = np.where(rng.random((8, TIME)) < 0.6, best, rng.integers(0, N, (8, TIME)))
    data = tf.data.Dataset.from_tensors((features, ids))
    flat = tf.data.Dataset.from_tensors(
        (features[:, :2].reshape(-1, DIM), ids[:, :2].reshape(-1))
    )
    rows = keras.Sequential([keras.Input((DIM,)), model.layers[-1]])
    found, expected = (r4c.calibrate(m, d) for m, d in ((model, data), (rows, flat)))
    assert_allclose(found.temperature, expected.temperature, rtol=1e-4)
    found, expected = (
        r4c.conformalize(m, d, 0.5) for m, d in ((model, data), (rows, flat))
    )
    assert_allclose(found.threshold, expected.threshold, rtol=1e-5)
    scores = model(features).numpy()
    of_lists = np.reshape(expected(scores.reshape(-1, N)), scores.shape)
    assert_array_equal(found(scores), of_lists)


def test_a_mask_of_examples(scores, ids):
    """`[batch]`, beside `[batch, n]` of items."""
    scores = scores[:, 0]
    ids = np.abs(ids[:, 0])
    mask = np.array([True, False, True])
    of_columns = losses.MeanAveragePrecisionLoss, losses.SpearmanLoss
    for make in (
        losses.SoftmaxLoss,
        *of_columns,
        lambda: metrics.MeanAveragePrecision(N),
    ):
        labels = ids if make is losses.SoftmaxLoss else np.eye(N, dtype="float32")[ids]
        found = make()(labels, masked(scores, mask))
        expected = make()(labels[mask], scores[mask])
        assert_allclose(found, expected, rtol=1e-5)


# What is refused.


def in_loss(form):
    loss = losses.RankmaxLoss(label_format="ids")
    return lambda ids, encodings: loss(ids, form(encodings))


def in_loss_over_classes(head):
    return in_loss(head.over_classes)


def in_metric(head):
    metric = metrics.MRR(label_format="ids")

    def value(ids, encodings):
        values, weights = metric.per_list(ids, head(encodings))
        return tf.reduce_sum(values[:, 0] * weights)

    return value


def in_sample(head):
    sampled = layers.SampledScores(head.classes, 2)
    sampled.build((None, DIM))

    def loss(ids, encodings):
        scores = sampled(encodings, class_ids=ids)
        return tf.reduce_sum(tf.where(tf.math.is_inf(scores), 0.0, scores))

    return loss


def in_ranks(head):
    model = models.ExtremeClassifier(keras.layers.Identity(), head.classes, DIM, None)

    def sum_of_ranks(ids, encodings):
        ranks, _ = model.ranks_of_batch(None, ids, encodings, tf.float32)
        return tf.reduce_sum(ranks.above)

    return sum_of_ranks


def in_margin(head):
    with_margin = layers.CosineHead(head.classes, margin=0.1)
    with_margin.build((None, DIM))
    return lambda ids, encodings: tf.reduce_sum(with_margin(encodings, ids))


# What ids hold at a position, and the dtype; none is a class, and none is padding.
NO_CLASS = {
    "-2": (-2, "int32"),
    "-7": (-7, "int8"),
    "-100": (-100, "int64"),
    "n": (N, "int32"),
    "nan": (np.nan, "float32"),
    "-1.5": (-1.5, "float32"),
    "2**63": (2**63, "uint64"),
    "several": ([-2, -2], "int32"),
    "padded": ([-1, -100], "int32"),
    "beside a class": ([0, -7], "int32"),
    "as wide as the scores": ([-2] * N, "int32"),
}


FAST = {"-2", "nan", "several", "beside a class"}
slow = pytest.mark.slow
OTHERS = [in_loss_over_classes, in_metric, in_sample, in_ranks, in_margin]


@pytest.mark.parametrize(
    "consumer, bad",
    [
        *((in_loss, bad) for bad in sorted(FAST)),
        *((other, "-2") for other in OTHERS),
        *(
            pytest.param(in_loss, bad, marks=slow)
            for bad in sorted(NO_CLASS.keys() - FAST)
        ),
        *(
            pytest.param(other, bad, marks=slow)
            for other in OTHERS
            for bad in ("several", "nan")
        ),
    ],
)
def test_ids_that_are_no_class_raise(consumer, bad, normal, request):
    """At one position; where a mask leaves out that position, it may hold anything."""
    value, dtype = NO_CLASS[bad]
    value = np.array(value, dtype)
    ids = np.zeros((BATCH, TIME, *value.shape), dtype)
    ids[1, 2] = value
    encodings = tf.constant(normal(BATCH, TIME, DIM))
    head = layers.DotProductHead(layers.ClassTable(N, DIM))
    head(encodings)
    call = consumer(head)
    rule = r"must hold class ids in \[0, 6\), or -1 for padding, where PyTorch has -100"
    assert_refused(call, rule, tf.constant(ids), encodings)
    mask = np.ones((BATCH, TIME), bool)
    mask[1, 2] = False
    assert np.isfinite(call(tf.constant(ids), masked(encodings, mask)))
    jit_compile = bad in ("-2", "2**63")
    if not jit_compile:
        request.getfixturevalue("as_for_xla")
    found = tf.function(call, jit_compile=jit_compile)(tf.constant(ids), encodings)
    assert np.isnan(found)


@pytest.mark.parametrize("compiled", [False, True])
def test_relevance_below_zero_is_no_id(compiled, scores, rng):
    """A position without any item is padding, as with -1; a NaN raises."""
    relevance = rng.integers(0, 3, scores.shape).astype("float32")
    relevance[..., 0] = 1
    relevance[0, 1] = -100
    relevance[2, 3] = [-2, -1, -7, -2, -1, -5]
    there = np.ones((BATCH, TIME), bool)
    there[0, 1] = there[2, 3] = False
    for dtype in ("float32", "int32"):
        call = (
            losses.SoftmaxLoss() if not compiled else tf.function(losses.SoftmaxLoss())
        )
        found = call(tf.constant(relevance.astype(dtype)), tf.constant(scores))
        expected = losses.SoftmaxLoss()(relevance[there], scores[there])
        assert_allclose(found, expected, rtol=1e-5)
    relevance[0, 1, 2] = np.nan
    with refused_in_any_mode("finite relevance"):
        call(tf.constant(relevance), tf.constant(scores))


def test_evaluate_and_calibrate_refuse_ids_that_are_no_class(scores, ids):
    ids[1, 2] = -100
    data = tf.data.Dataset.from_tensors((scores, ids))
    for function, error in (
        (
            lambda: r4c.evaluate(lambda x: x, data, ["mrr"]),
            tf.errors.InvalidArgumentError,
        ),
        (lambda: r4c.calibrate(lambda x: x, data), ValueError),
        (lambda: r4c.conformalize(lambda x: x, data), ValueError),
    ):
        with pytest.raises(error, match="-1 for padding, where PyTorch has -100"):
            function()


def test_other_shapes_raise(scores, ids, normal):
    loss = losses.SoftmaxLoss()
    square = normal(TIME, TIME, N)
    for labels, x, weights, message in (
        (ids.T, scores, None, r"`y_true` must have the positions"),
        (ids[0], scores, None, r"`y_true` must have the positions"),
        (
            ids,
            scores,
            np.ones(BATCH),
            r"`sample_weight` must have the axes .*\[batch, 1\]",
        ),
        (
            np.zeros((TIME, TIME), int),
            square,
            np.ones(TIME),
            r"`sample_weight` must have the axes",
        ),
        (
            ids,
            tf.RaggedTensor.from_tensor(scores),
            None,
            r"Positions must not be ragged",
        ),
    ):
        with refused(message):
            loss(labels, x, weights)
