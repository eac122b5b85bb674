"""Labels, scores and weights of every form and dtype, and what comes at the edges."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from tensorflow import keras

import rank4class_tf
from rank4class_tf import _keras, layers, losses, metrics, models, optimizers

from .refused import refused, refused_in_any_mode, refused_in_graph
from .rounding import assert_all_close
from .small_models import linear, sequential

DTYPES: list[type] = [
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
]


@pytest.fixture
def scores(normal):
    # More classes than the smallest dtypes count to.
    return normal(4, 1000)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [losses.SoftmaxLoss, metrics.MRR])
def test_class_ids_and_relevance(make, dtype, scores):
    ids = np.array([1, 0, 127, 100])
    relevance = np.eye(4, 1000)
    ragged = tf.cast(tf.ragged.constant(ids[:, None].tolist()), dtype)
    of_ids = make()(ids, scores)
    of_relevance = make()(relevance, scores)
    assert_array_equal(make()(ids.astype(dtype), scores), of_ids)
    assert_array_equal(make()(ragged, scores), of_ids)
    assert_array_equal(make()(relevance.astype(dtype), scores), of_relevance)
    if dtype is np.uint64:
        assert_array_equal(tf.function(make())(ids.astype(dtype), scores), of_ids)


@pytest.mark.parametrize("make", [losses.SoftmaxLoss, metrics.NDCG])
def test_ragged_ids_at_positions_as_wide_as_the_scores(make, normal):
    scores = normal(1, 2, 3)
    ragged = tf.ragged.constant([[[0, 1, 2], [1]]])
    padded = [[[0, 1, 2, -1], [1, -1, -1, -1]]]  # Wider, and so no relevance.
    np.testing.assert_array_equal(make()(ragged, scores), make()(padded, scores))


@pytest.mark.parametrize("width", [3, None])
def test_ids_count_once(width, scores, rng):
    ids = rng.integers(-1, 60, size=(4, width or 200))
    relevance = np.zeros(scores.shape)
    for list_, of_list in zip(relevance, ids, strict=True):
        list_[of_list[of_list >= 0]] = 1
    spec = tf.TensorSpec([None, width], tf.int64)
    loss = losses.SoftmaxLoss(label_format="ids", reduction="none")
    compute = tf.function(lambda y_true: loss(y_true, scores), input_signature=[spec])
    expected = losses.SoftmaxLoss(reduction="none")(relevance, scores)
    assert_allclose(compute(ids), expected, rtol=1e-5)


def test_ids_of_no_class_raise(scores):
    for bad in (1000, 2**16 - 1):
        with refused(r"class ids in \[0, 1000\)"):
            losses.SoftmaxLoss()(np.array([1, bad, 0, 0], np.uint16), scores)


@pytest.mark.parametrize("make", [losses.SoftmaxLoss, metrics.MRR])
def test_other_tensors_raise(make):
    scores = tf.constant([[1.0, 2.0]])
    labels = tf.constant([[0, 1]])
    with refused("`y_pred` must be dense or ragged. Received: a SparseT"):
        make()(labels, tf.sparse.from_dense(scores))
    with refused("`y_true` must be dense. Received: a SparseTensor"):
        make()(tf.sparse.from_dense(labels), scores)
    for dtype in (tf.string, tf.complex64):
        bad = tf.as_string(scores) if dtype == tf.string else tf.cast(scores, dtype)
        with refused(f"`y_pred` must be numbers. Received: {dtype.name}"):
            make()(labels, bad)
        with refused(f"`sample_weight` must be .* {dtype.name}"):
            make()(labels, scores, bad[:, 0])


@pytest.mark.parametrize("complex_first", [True, False])
@pytest.mark.parametrize(
    "make", [losses.SpearmanLoss, lambda: metrics.MeanAveragePrecision(2).update_state]
)
def test_complex_numbers_of_datasets_raise(make, complex_first):
    pair = [np.array([[1, 0], [0, 1]], dtype) for dtype in (np.complex64, "float32")]
    name = "y_true" if complex_first else "y_pred"
    with refused(f"`{name}` must be numbers. Received: complex64"):
        make()(*(pair if complex_first else pair[::-1]))


def test_labels_of_one_item_are_not_those_of_all_in_a_graph():
    """Where shapes are known only as it runs, they were spread over all items."""
    loss = losses.SoftmaxLoss(label_format="relevance", reduction="none")
    function = tf.function(loss, [tf.TensorSpec([None, None])] * 2)
    assert_allclose(function([[1.0, 0.0]], [[0.0, 0.0]]), np.log([2.0]), rtol=1e-6)
    with refused_in_graph("`y_true`"):
        function([[1.0]], [[0.0, 0.0]])


@pytest.mark.parametrize("wrong", [[np.nan, 1], [-np.inf, 1], [3e38, 3e38]])
def test_relevance_is_finite_also_in_sum(wrong):
    """The sum of a list tells; the error shows the label that is to blame."""
    rows = np.float32([[0, 1], wrong])
    loss = losses.SoftmaxLoss()
    culprit = f"{wrong[0]:.3g}"[:3]
    for compute in (loss, tf.function(loss)):
        with refused_in_any_mode("also in sum") as e:
            compute(rows, np.zeros([2, 2], "float32"))
        assert culprit in str(e.value).rpartition("Received")[2]


@pytest.mark.parametrize("make", [losses.SoftmaxLoss, metrics.MRR])
@pytest.mark.parametrize("label_format", ["ids", "relevance"])
def test_lists_of_no_items_raise(make, label_format):
    labels = np.full([2, 0 if label_format == "relevance" else 1], -1.0)
    scores = np.zeros([2, 0])
    labels = labels.astype("f")
    scores = scores.astype("f")
    rule = "`y_pred` must score at least"
    with refused(f"{rule} one item. Received: shape"):
        make(label_format=label_format)(labels, scores)
    compute = make(label_format=label_format)
    graph = tf.function(lambda *args: compute(*args), [tf.TensorSpec([None, None])] * 2)
    with refused_in_graph(rule):
        graph(labels, scores)


@pytest.mark.parametrize("form", ["ids", "relevance"])
def test_weights_whose_width_only_running_tells(form, jit_compile):
    labels = tf.eye(3, 4) if form == "relevance" else tf.range(3)[:, tf.newaxis]
    loss = losses.SoftmaxLoss(label_format=form, reduction="none")
    metric = metrics.MRR(label_format=form)
    of_any = tf.TensorSpec([None, None])
    scores = tf.random.uniform([3, 4])
    weights = tf.random.uniform([3, 4])
    specs = [tf.TensorSpec([None, labels.shape[1]], labels.dtype), of_any, of_any]
    for compute in (loss, lambda *batch: metric.per_list(*batch)[1]):
        step = tf.function(
            lambda *x, compute=compute: compute(*x), specs, jit_compile=jit_compile
        )
        for given in (weights, weights[:, :1]):
            expected = compute(labels, scores, given)
            assert_allclose(step(labels, scores, given), expected, rtol=1e-6)
        # A width of two XLA would repeat to four.
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
            step(labels, scores, weights[:, :2])


@pytest.mark.parametrize("form", ["ids", "relevance"])
def test_weights_of_items_of_a_list_without_positives_are_their_mean(form, rng):
    scores = rng.normal(size=(2, 4))
    weights = rng.uniform(size=(2, 4))
    labels = np.array([[0, 1, 0, 0], [0, 0, -1, 0]])
    exclude = None
    expected = [weights[0, 1], weights[1, [0, 1, 3]].mean()]
    if form == "ids":
        labels = np.array([1, -1])
        exclude = np.array([[-1], [2]])
    metric = metrics.NDCG(2, count_empty=True)
    values, found = metric.per_list(labels, scores, weights, exclude)
    assert_allclose(found, expected)
    weights[1] = np.nan  # Of a list that does not count.
    metric = metrics.NDCG(2)
    assert_allclose(metric(labels, scores, weights, exclude), values[0, 0], rtol=1e-6)


@pytest.mark.parametrize(
    "make", [losses.RankmaxLoss, lambda: metrics.NDCG().update_state]
)
@pytest.mark.parametrize(
    "labels, message",
    [
        (np.eye(4, dtype="float32")[:2], "labels of 4 items and scores of 6"),
        (np.eye(4)[:2] > 0, "labels of 4 items and scores of 6"),
        (
            np.eye(4, dtype=int)[:2],
            "a list of 4 zeros and ones .* `y_pred` scores 6 items",
        ),
        (np.array([["a", "b"]] * 2), "must be numbers"),
        (np.array(["a", "b"]), "must be numbers"),
        (
            tf.ragged.constant([[True], []]),
            "`y_true` must hold integers where it is ragged",
        ),
    ],
)
def test_labels_that_are_none(make, labels, message):
    with refused(message):
        make()(labels, np.zeros((2, 6), "float32"))


def test_zeros_and_ones_beside_scores_of_an_unknown_width():
    """The error has no number to name."""
    specs = [tf.TensorSpec([None, 4], tf.int32), tf.TensorSpec([None, None])]
    compute = tf.function(losses.SoftmaxLoss(), input_signature=specs)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="scores another number of items"
    ):
        compute(np.eye(4, dtype="int32")[:2], np.zeros((2, 6), "float32"))


def test_floating_ids_need_a_format(scores):
    ids = np.array([[3.0, 4.0], [5.0, -1.0], [6.0, 7.0], [8.0, -1.0]])
    value = losses.SoftmaxLoss(label_format="ids")(ids, scores)
    assert_array_equal(value, losses.SoftmaxLoss()(ids.astype(int), scores))


SECONDS = 1_700_000_000 + np.array([[0, 1, 2, 3]])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_integers_that_float32_cannot_hold(dtype):
    assert float(metrics.MRR()([3], SECONDS.astype(dtype))) == 1
    expected = np.log(np.exp([-3.0, -2.0, -1.0, 0.0]).sum())
    loss = losses.SoftmaxLoss()([3], SECONDS.astype(dtype))
    assert_allclose(loss, expected, rtol=1e-6)


def test_metrics_of_datasets_keep_the_digits_of_their_dtype():
    values = 1.7e9 + np.arange(10)
    found = metrics.SpearmanCorrelation(dtype="float64")(values, np.arange(10.0))
    assert_allclose(found, stats.spearmanr(values, np.arange(10))[0], rtol=1e-6)
    labels = np.arange(10) < 5
    metric = metrics.MeanAveragePrecision(1, dtype="float64")
    assert float(metric(labels.astype(float), 1 - np.geomspace(1e-9, 1e-7, 10))) == 1
    with refused(r"at most 2\*\*24"):
        metrics.SpearmanCorrelation().update_state(SECONDS[0], np.arange(4.0))


@pytest.mark.keras2
@pytest.mark.parametrize("loss", [losses.SoftmaxLoss(), losses.RankmaxLoss()])
def test_items_that_keras_masks_are_absent(loss):
    embedding = keras.layers.Embedding(4, 1, mask_zero=True)
    inputs = keras.Input((3,), dtype="int32")
    # The numbers of the items, with the mask that came with them.
    scores = keras.layers.Lambda(lambda x: tf.squeeze(x, -1), mask=lambda x, mask: mask)
    model = keras.Model(inputs, scores(embedding(inputs)))
    embedding.set_weights([np.array([[9.0], [1.0], [2.0], [3.0]])])
    ndcg = metrics.NDCG(2, name="weighted")
    model.compile("sgd", loss, metrics=[metrics.MRR()], weighted_metrics=[ndcg])
    x = np.array([[1, 2, 0], [3, 1, 0]])
    ids = np.array([1, 1])
    weight = np.array([2.0, 1.0])
    found = model.evaluate(x, ids, sample_weight=weight, verbose=0, return_dict=True)
    of_lists = [float(loss([1], [scores])) for scores in ([1.0, 2.0], [3.0, 1.0])]
    assert_allclose(found["loss"], np.mean(weight * of_lists), rtol=1e-6)
    assert found["mrr"] == pytest.approx((1 + 1 / 2) / 2)
    assert_allclose(found["weighted"], (2 * 1 + 1 / np.log2(3)) / 3, rtol=1e-6)


def test_a_mask_of_another_shape_raises():
    scores = tf.constant([[1.0, 2.0]])
    scores._keras_mask = tf.constant([[True, False, True]])
    for function in (losses.SoftmaxLoss(), metrics.MRR().update_state):
        with refused("mask that comes with `y_pred`"):
            function([0], scores)


def test_a_float_of_a_list_of_one_item_is_relevance():
    for label, expected in ((0.0, 0), (2.0, 1), (0, 1)):  # The last one is an id.
        metric = metrics.NDCG(count_empty=True)
        assert float(metric(np.array([[label]]), np.array([[0.3]]))) == expected


def test_the_unit_of_item_weights_changes_nothing():
    labels = [[2.0, 1.0, 0.0]]
    scores = [[1.0, 2.0, 3.0]]
    weights = np.array([[1.0, 2.0, 1.0]])
    gains = np.array([3.0, 2.0, 0.0])
    discounts = 1 / np.log2([2, 3, 4])
    expected = gains[::-1] @ discounts / (gains @ discounts)
    for unit in (1, 1e38, 1e-30):
        values, _ = metrics.NDCG(3).per_list(labels, scores, unit * weights)
        assert_allclose(values, [[expected]], rtol=1e-6)


@pytest.mark.skipif(
    not _keras.KERAS_3, reason="Keras 2 has no such reduction and dtype."
)
def test_the_newer_options_of_keras():
    loss = losses.SoftmaxLoss(reduction="mean_with_sample_weight", dtype="float64")
    value = loss([0, 1], [[1.0, 2.0], [3.0, 4.0]], sample_weight=[1.0, 3.0])
    expected = (np.log1p(np.e) + 3 * np.log1p(1 / np.e)) / 4
    assert value.dtype == tf.float64 and float(value) == pytest.approx(
        expected, rel=1e-6
    )
    again = losses.SoftmaxLoss.from_config(loss.get_config())
    assert (again.reduction, again.dtype) == (loss.reduction, "float64")


def test_ids_beyond_float32():
    scores = np.zeros((1, 2**24 + 3), "float32")
    scores[0, 2**24 + 1] = 1.0
    loss = losses.RankmaxLoss(margin=0.5)
    assert loss(np.array([2**24 + 1]), scores) == 0.0  # Nothing else within the margin.
    assert loss(np.array([2**24]), scores) > 1.0


def compiled():
    model = linear(5, 20)
    model.compile("sgd", loss=losses.RankmaxLoss(), metrics=[metrics.NDCG(3)])
    return model


@pytest.mark.keras2
def test_a_model_takes_forms_in_turns(rng):
    """Keras traces a model for labels of any rank after it has met two."""
    features = rng.normal(size=(8, 5))
    ids = rng.integers(0, 20, 8)
    padding = -np.ones_like(ids)
    model = compiled()
    forms = (
        ids[:, None],
        ids,
        np.stack([ids, padding], 1),
        np.stack([padding, ids, ids], 1),
    )
    found = [
        model.evaluate(features, labels, verbose=0) for labels in (*forms, *forms[:2])
    ]
    assert_allclose(found, [found[0]] * 6, rtol=1e-6)


@pytest.mark.keras2
def test_labels_of_all_items_after_ids_raise(rng):
    features = rng.normal(size=(8, 5))
    ids = rng.integers(0, 20, 8)
    model = compiled()
    model.fit(features, ids, verbose=0)
    with refused_in_graph("`label_format` must be"):
        model.fit(features, np.eye(20, dtype=int)[ids], verbose=0)
    with refused_in_graph("zeros and ones is neither.*20 items"):
        model.fit(features, np.eye(30, dtype=int)[ids], verbose=0)


@pytest.mark.keras2
def test_where_nothing_can_raise_labels_of_all_items_after_ids_are_nan(as_for_xla):
    loss = losses.SoftmaxLoss(reduction="none")
    scores = tf.zeros([2, 4])
    compute = tf.function(loss, [tf.TensorSpec(None, tf.int64), tf.TensorSpec([2, 4])])
    assert np.isnan(compute(np.eye(4, dtype=int)[:2], scores)).all()
    for labels in ([1, 2], [[1], [2]], [[1, 2], [3, -1]]):
        assert_allclose(compute(np.array(labels), scores), loss(labels, scores))


@pytest.mark.keras2
@pytest.mark.parametrize("shape", [(8,), (4, 5)], ids=["examples", "positions"])
@pytest.mark.parametrize("ignored", [0, -100])
def test_an_ignored_class_is_as_in_keras(shape, ignored, rng, normal, in_mode):
    ids = np.where(rng.random(shape) < 0.3, ignored, rng.integers(1, 4, shape))
    scores = normal(*shape, 4)
    weights = rng.random(shape).astype("float32")
    is_kept = ids != ignored
    per_list = keras.losses.sparse_categorical_crossentropy(
        np.maximum(ids, 0), scores, from_logits=True
    )
    ours = losses.SoftmaxLoss(ignore_class=ignored)
    for w in (None, weights):
        terms = np.where(is_kept, per_list, 0) * (1 if w is None else w)
        expected = terms.sum() / is_kept.sum()
        assert_allclose(in_mode(ours)(ids, scores, w), expected, rtol=1e-5)
    best = scores.argmax(axis=-1)
    metric = metrics.TopKAccuracy(1, ignore_class=ignored)
    metric.update_state(ids, scores)
    assert_allclose(metric.result(), (best == ids)[is_kept].mean(), rtol=1e-6)


@pytest.mark.parametrize("num_sampled", [None, pytest.param(3, marks=pytest.mark.slow)])
def test_a_model_ignores_a_class_as_padding(num_sampled, rng, normal):
    """Padding does not change a step, nor an evaluation."""
    x = normal(4, 5, 3)
    ids = rng.integers(0, 6, (4, 5))
    results = []
    for ignore_class, padding in ((0, 0), (None, -1)):
        keras.utils.set_random_seed(0)
        model = models.ExtremeClassifier(linear(5, 3, 3), 6, 3, num_sampled, seed=0)
        loss = losses.SoftmaxLoss(ignore_class=ignore_class)
        metric = metrics.TopKAccuracy(1, ignore_class=ignore_class)
        model.compile(optimizers.RowwiseSGD(0.1), loss, metrics=[metric])
        labels = np.where(ids > 0, ids, padding)
        history = model.fit(x, labels, shuffle=False, verbose=0).history
        found = model.evaluate(x, labels, verbose=0)
        results.append([*history["loss"], *found, *map(np.array, model.get_weights())])
    assert_all_close(*results, 1e-5, 1e-6)


def test_ignored_examples_are_not_empty_lists(normal):
    """With `count_empty` a list without a positive counts as 0; these do not count."""
    ids = np.array([0, 1, 2, 0, 4, 3])
    scores = normal(6, 5)
    expected = (scores.argmax(axis=1) == ids)[ids > 0].mean()

    def metric():
        return metrics.HitRate(1, count_empty=True, ignore_class=0)

    ranked = metrics.RankedIds(tf.argsort(scores, direction="DESCENDING"))
    for given in (scores, ranked):
        of_given = metric()
        of_given.update_state(ids, given)
        assert_allclose(of_given.result(), expected, rtol=1e-6)

    encoder = sequential((5,), keras.layers.Rescaling(1.0))
    table = layers.ClassTable.from_rows(np.eye(5))
    model = models.ExtremeClassifier(encoder, table, 5, None, normalize=False)
    model.compile("sgd", losses.SoftmaxLoss(ignore_class=0), metrics=[metric()])
    found = model.evaluate(scores, ids, verbose=0, return_dict=True)
    assert found["top_k_accuracy_at_1"] == pytest.approx(expected)
    measured = rank4class_tf.evaluate(model, (scores, ids), [metric()])
    assert_allclose(measured["top_k_accuracy_at_1"].value, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_an_ignored_class_beyond_the_dtype_of_labels(dtype, normal, in_mode):
    """It is none of the labels; a cast would wrap it to another class."""
    ids = np.array([0, 1, 2, 0], dtype)
    scores = normal(4, 5)
    expected = losses.SoftmaxLoss()(ids, scores)
    for ignore_class in (2**32, -(2**32), 256):
        loss = losses.SoftmaxLoss(ignore_class=ignore_class)
        assert_allclose(in_mode(loss)(ids, scores), expected, rtol=1e-6)


class Masked(keras.layers.Layer):
    """Keeps each example whose first number is not 0."""

    def compute_mask(self, inputs, previous_mask=None):
        return inputs[:, 0] != 0

    def call(self, inputs):
        return inputs


@pytest.mark.parametrize("num_sampled", [None, 2])
def test_an_ignored_class_beside_a_mask_of_examples(num_sampled):
    encoder = sequential((5,), Masked())
    model = models.ExtremeClassifier(encoder, 9, 5, num_sampled, seed=0)
    model.compile("sgd", losses.SoftmaxLoss(ignore_class=0))
    ids = np.array([3, 0, 3, 0, 3, 3])
    x = np.ones((6, 5), "float32")
    expected = model.evaluate(x[:1], ids[:1], verbose=0)
    x[4:, 0] = 0
    assert model.evaluate(x, ids, verbose=0) == pytest.approx(expected)


def test_what_an_ignored_class_must_be(scores):
    relevance = np.eye(4, 1000)
    with refused("`ignore_class` needs class ids"):
        losses.SoftmaxLoss(ignore_class=0)(relevance, scores)
    with refused("need label_format='ids'"):
        losses.SoftmaxLoss(ignore_class=0)(np.zeros((4, 4), int), scores[:, :4])
    with refused("class ids as integers with `ignore_class`"):
        losses.SoftmaxLoss(ignore_class=0)(np.array([True] * 4), scores)
    with refused("class ids as integers with `ignore_class`"):
        metrics.MRR(ignore_class=0)(["a"], metrics.RankedIds([["a", "b"]]))
    with refused("`ignore_class` must be None with"):
        metrics.MRR(ignore_class=0, label_format="relevance")
    both = [losses.SoftmaxLoss(ignore_class=0), losses.RankmaxLoss()]
    model = models.ExtremeClassifier(keras.layers.Dense(3), 6, 3, None)
    with refused("must be the same for all of `losses`"):
        model.compile("sgd", losses.WeightedSumLoss(both, [1.0, 1.0]))
    with refused("must have the `ignore_class` of the loss"):
        model.compile("sgd", both[1], metrics=[metrics.MRR(ignore_class=0)])
    with refused("must have one `ignore_class`"):
        rank4class_tf.evaluate(
            lambda x: x,
            (scores, [1, 2, 3, 4]),
            [metrics.MRR(ignore_class=1), metrics.NDCG()],
        )
