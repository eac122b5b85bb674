"""Metrics of data sets, against scikit-learn, SciPy and NumPy, and what they share."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import special, stats
from sklearn.metrics import average_precision_score
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import layers
from rank4class_tf.metrics import ExpectedCalibrationError, SpearmanCorrelation, get

from ..contract.tables import DATASET_METRICS
from ..refused import refused, refused_in_graph
from ..small_models import linear, sequential
from .results import filled, in_graph

both = pytest.mark.parametrize("make", DATASET_METRICS.values(), ids=DATASET_METRICS)
mean_average_precision = functools.partial(r4c.metrics.MeanAveragePrecision, 4)
correlation = functools.partial(SpearmanCorrelation, 4)


def spearman(x, y):
    return stats.spearmanr(np.float32(x), y).statistic


@pytest.mark.parametrize("weighted", [False, True])
def test_average_precision_is_that_of_scikit_learn(columns, weighted, rng):
    labels, scores = columns
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], 60) if weighted else None
    metric = filled(mean_average_precision, labels, scores, weights)
    pairs = zip(labels.T, scores.T, strict=True)
    expected = [
        average_precision_score(y > 0, s, sample_weight=weights) for y, s in pairs
    ]
    assert_allclose(metric.per_class(), expected, rtol=1e-12)
    assert_allclose(metric.result(), np.mean(expected), rtol=1e-12)


def test_average_precision_leaves_out_what_is_not_known(columns):
    labels, scores = columns
    labels[:20, 2], labels[:, 3] = -1, 0
    scores[5, 0], labels[5, 0] = np.nan, 0
    metric = filled(mean_average_precision, labels, scores)
    last = np.where(np.isnan(scores), -100, scores)
    known = (0, 0), (1, 0), (2, 20)
    expected = [
        average_precision_score(labels[i:, c] > 0, last[i:, c]) for c, i in known
    ]
    assert_allclose(metric.per_class(), [*expected, np.nan], rtol=1e-12)
    assert_allclose(metric.result(), np.mean(expected), rtol=1e-12)
    assert (
        float(r4c.metrics.MeanAveragePrecision(1)([[1], [0]], [[np.nan], [-np.inf]]))
        == 0
    )


def test_correlation_is_that_of_scipy(rng, columns):
    _, scores = columns
    targets = rng.normal(size=(60, 4)) + scores
    targets[:, 2] = np.round(targets[:, 2])
    metric = filled(correlation, targets, scores)
    expected = [spearman(*pair) for pair in zip(targets.T, scores.T, strict=True)]
    assert_allclose(metric.per_output(), expected, rtol=1e-12)
    assert_allclose(metric.result(), np.mean(expected), rtol=1e-12)
    targets[7, 0] = np.nan
    weights = (np.arange(60) % 5 > 0).astype("float32")
    metric = filled(correlation, targets, scores, weights)
    keep = (weights > 0) & ~np.isnan(targets[:, 0])
    expected = spearman(targets[keep, 0], scores[keep, 0])
    assert_allclose(metric.per_output()[0], expected, rtol=1e-12)


def test_correlation_of_constants_and_nan():
    metric = SpearmanCorrelation(4)
    y = np.arange(12.0).reshape(3, 4)
    targets = y.copy()
    scores = y.copy()
    scores[:, 1] = 5
    targets[:, 2] = 5
    metric.update_state(targets, scores)
    assert_allclose(metric.per_output(), [1, 0, np.nan, 1], rtol=1e-12)
    assert_allclose(metric.result(), 2 / 3, rtol=1e-6)
    scores[1, 3] = np.nan
    assert np.isnan(metric(targets, scores))


def test_one_output_needs_no_column(rng):
    y, s = rng.normal(size=(2, 9))
    metric = get("spearman_correlation", dtype="float64")
    metric.update_state(y, s)
    metric.update_state(y[:, None], s[:, None])
    expected = stats.spearmanr(np.tile(y, 2), np.tile(s, 2)).statistic
    assert_allclose(metric.result(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "batch, message",
    [
        (([1.0, 2.0], [1.0, 2.0, 3.0]), "`y_true` must have the shape of `y_pred`"),
        (
            ([1.0, 2.0], [1.0, 2.0], [1.0]),
            "`sample_weight` must have a weight for each example",
        ),
        (
            ([1.0, 2.0], [1.0, 2.0], [1.0] * 3),
            "`sample_weight` must have a weight for each exampl",
        ),
        (([2**24 + 1], [0.5]), r"`y_true` must hold whole numbers of at most 2\*\*24"),
        (([0.5], [-(2**40)]), r"`y_pred` must hold whole numbers of at most 2\*\*24"),
    ],
)
def test_batches_that_raise(batch, message):
    with refused(message):
        SpearmanCorrelation().update_state(*map(np.array, batch))


@both
def test_labels_and_weights_that_are_nan_show(make, columns):
    labels, scores = columns
    weights = np.ones(60)
    weights[7] = np.nan
    assert np.isnan(filled(make, labels, scores, weights).result())
    if make is DATASET_METRICS["mean_average_precision"]:
        labels[7, 1] = np.nan
        assert np.isnan(filled(make, labels, scores).result())


@pytest.mark.parametrize("shape", [None, [None, None], [None, 1], [None], []])
def test_weights_whose_shape_only_running_tells(shape, columns):
    labels, scores = columns
    weights = (
        np.arange(60)
        if shape == [None]
        else np.full([] if shape == [] else (60, 1), 2.0)
    )
    weights = weights.astype("float32")
    metric = mean_average_precision()
    expected = mean_average_precision()
    specs = [tf.TensorSpec([None, 4]), tf.TensorSpec([None, 4]), tf.TensorSpec(shape)]
    update = in_graph(metric.update_state, specs)
    update(labels, scores, weights)
    assert_allclose(metric.result(), expected(labels, scores, weights))
    if shape in (None, [None, None]):
        with refused_in_graph("`sample_weight` must"):
            update(labels, scores, np.ones((60, 2), "float32"))


@both
def test_batches_reset_merge_and_config(make, columns):
    labels, scores = columns
    whole = float(filled(make, labels, scores, parts=1).result())
    metric = filled(make, labels, scores, parts=7, max_examples=60)
    assert float(metric.result()) == whole
    metric.reset_state()
    assert float(metric.result()) == 0
    metric.update_state(labels[:0], scores[:0])
    others = [
        filled(make, labels[rows], scores[rows]) for rows in (slice(25), slice(25, 60))
    ]
    metric.merge_state(others)
    assert_allclose(metric.result(), whole, rtol=1e-14)
    copy = get(keras.utils.serialize_keras_object(make(name="mine", max_examples=7)))
    assert copy.name == "mine" and copy.max_examples == 7 and type(copy) is type(metric)


@both
def test_too_many_examples_raise_or_are_nan(make, columns, monkeypatch):
    labels, scores = columns
    message = "`max_examples`=50 must be at least the number of examples. Received:.*60"
    with refused(message):
        filled(make, labels, scores, max_examples=50)
    metric = make(max_examples=50)
    with refused_in_graph(message):
        in_graph(metric.update_state)(labels, scores)
    assert int(metric.count) == 0
    monkeypatch.setattr(r4c._tf.raising, "in_xla", lambda: True)
    in_graph(metric.update_state)(labels, scores)
    assert np.isnan(metric.result())


@both
def test_shapes_and_strategies(make, columns, two_devices):
    labels, scores = columns
    with refused(r"`y_pred` must have the shape \[batch, 4\]"):
        make().update_state(labels, scores[:, :2])
    with two_devices.scope(), refused("replicas cannot share"):
        make()


@pytest.mark.keras2
def test_in_keras(columns, jit_compile):
    labels, scores = columns
    model = linear(4, 4)
    metrics = [make(max_examples=60) for make in DATASET_METRICS.values()]
    model.compile("sgd", "mse", metrics=metrics, jit_compile=jit_compile)
    logs = model.evaluate(scores, labels, batch_size=30, verbose=0, return_dict=True)
    predicted = model.predict(scores, verbose=0)
    for name, make in DATASET_METRICS.items():
        assert_allclose(logs[name], filled(make, labels, predicted).result(), rtol=1e-5)


def reference(p, right, num_bins=15, weights=None):
    """By its definition, in float64; `right` is whether the best class is."""
    confidence = p.max(1)
    weights = np.ones(len(p)) if weights is None else weights
    error = 0.0
    for b in range(num_bins):
        above = confidence > b / num_bins if b else confidence >= 0
        inside = above & (confidence <= (b + 1) / num_bins)
        error += abs((weights * (right - confidence))[inside].sum())
    return error / weights.sum()


def assert_error(metric, expected, rel=1e-6):
    assert_allclose(metric.result(), expected, rtol=rel)


@pytest.fixture
def data(rng):
    """Probabilities, scores and ids of 90 examples and 6 classes."""
    scores = 2 * rng.normal(size=(90, 6))
    return special.softmax(scores, axis=1), scores, rng.integers(0, 6, 90)


@pytest.mark.parametrize("num_bins", [1, 7, 15])
def test_confidences_at_the_edges_of_bins(num_bins, rng):
    confidence = rng.uniform(size=300)
    right = rng.uniform(size=300) < 0.6
    confidence[:3] = 0.0, 1.0, 1 / num_bins
    weights = rng.uniform(size=300)
    metric = ExpectedCalibrationError(num_bins, dtype="float64")
    # The other class is below, so that a confidence of 0 is the highest one, too.
    metric.update_state(
        np.where(right, 0, 1), np.stack([confidence, confidence - 1], 1), weights
    )
    assert_error(
        metric, reference(confidence[:, None], right, num_bins, weights), 1e-12
    )


@pytest.mark.parametrize("num_bins", [1, 15])
def test_batches_forms_and_merging(num_bins, data, rng):
    p, scores, ids = data
    weights = rng.uniform(size=90)
    expected = reference(p, p.argmax(1) == ids, num_bins, weights)
    metric = ExpectedCalibrationError(num_bins, dtype="float64")
    for rows in np.array_split(np.arange(90), 4):
        metric.update_state(ids[rows], p[rows], weights[rows])
    assert_error(metric, expected, 1e-12)
    # The same from one-hot labels, from scores, and merged from two parts.
    probabilities = layers.Probabilities(dtype="float64")
    others = [
        ExpectedCalibrationError(num_bins, probabilities=probabilities)
        for _ in range(2)
    ]
    for metric, rows in zip(others, np.array_split(np.arange(90), 2), strict=True):
        metric.update_state(np.eye(6)[ids[rows]], scores[rows], weights[rows])
    others[0].merge_state(others[1:])
    assert_error(others[0], expected)
    others[0].reset_state()
    assert float(others[0].result()) == 0


def test_labels_of_all_forms(data):
    p, _, ids = data
    several = np.stack([ids, (ids + 1) % 6], axis=1)
    several[::2, 1] = -1
    metric = ExpectedCalibrationError()
    metric.update_state(several, p)
    assert_error(metric, reference(p, (p.argmax(1)[:, None] == several).any(1)))
    # The best class of every list is masked: the next one counts.
    labels = np.eye(6)[ids]
    labels[np.arange(90), p.argmax(1)] = -1
    counted = (labels == 1).any(1)
    rest = np.where(labels < 0, 0, p)
    metric.reset_state()
    metric.update_state(labels, p)
    assert_error(metric, reference(rest[counted], (rest.argmax(1) == ids)[counted]))


@pytest.mark.parametrize("probabilities", [None, layers.Probabilities()])
def test_an_item_of_weight_0_is_masked(data, probabilities):
    p, scores, ids = data
    values = p if probabilities is None else scores
    labels = np.eye(6)[ids]
    weights = np.ones_like(labels)
    weights[np.arange(90), p.argmax(1)] = 0
    metric = ExpectedCalibrationError(probabilities=probabilities)
    metric.update_state(labels, values, sample_weight=weights)
    masked = ExpectedCalibrationError(probabilities=probabilities)
    masked.update_state(np.where(weights == 0, -1, labels), values)
    assert_error(metric, float(masked.result()))
    rest = np.where(weights == 0, 0, p)
    counted = weights[np.arange(90), ids] > 0
    if probabilities is not None:
        rest /= rest.sum(1, keepdims=True)
    assert_error(metric, reference(rest[counted], (rest.argmax(1) == ids)[counted]))


def test_ranks_tell_no_probabilities():
    ranked = r4c.metrics.RankedIds([[0, 1]])
    with refused("`y_pred` must be probabilities or scores, which ranks do not tell"):
        ExpectedCalibrationError().update_state([0], ranked)


def test_ties_count_in_expectation():
    metric = ExpectedCalibrationError()
    assert float(metric([0, 1, 2, 3], np.full([4, 4], 0.25))) == 0
    assert not metric.higher_is_better
    assert float(metric([0], [[0.5, 0.5]])) == 0


def test_scores_are_no_probabilities(data):
    _, scores, ids = data
    metric = ExpectedCalibrationError()
    message = (
        "`y_pred` must be probabilities in .0, 1.; for scores, set `probabilities`"
    )
    with refused(message):
        metric.update_state(ids, scores)
    with refused_in_graph(message):
        in_graph(metric.update_state)(ids, scores)
    assert float(metric.result()) == 0
    # An example that does not count may have any.
    assert float(metric([0, -1], [[1.0, 0.0], [7.0, 0.0]])) == 0


def test_scores_make_the_result_nan_for_xla(data, as_for_xla):
    _, scores, ids = data
    metric = ExpectedCalibrationError()
    in_graph(metric.update_state)(ids, scores)
    assert np.isnan(float(metric.result()))


def test_in_keras_and_on_two_devices(data, two_devices):
    p, scores, ids = data
    for scope in (two_devices.scope(), tf.distribute.get_strategy().scope()):
        with scope:
            model = sequential((6,), keras.layers.Activation("linear"))
            metric = ExpectedCalibrationError(probabilities=layers.Probabilities())
            model.compile("sgd", "sparse_categorical_crossentropy", metrics=[metric])
        logs = model.evaluate(scores, ids, batch_size=32, verbose=0, return_dict=True)
        expected = reference(p, p.argmax(1) == ids)
        assert_allclose(logs["expected_calibration_error"], expected, rtol=1e-5)


def test_scores_may_be_lists_integers_ragged_or_masked():
    metrics = [
        ExpectedCalibrationError(probabilities=layers.Probabilities()) for _ in range(4)
    ]
    of_numbers = float(metrics[0]([0, 1], [[1.0, 0.0], [0.0, 1.0]]))
    assert float(metrics[1]([0, 1], [[1, 0], [0, 1]])) == of_numbers > 0
    ragged = [
        tf.ragged.constant(x)
        for x in ([[1.0, 0.0], [1.0]], [[np.log(3.0), 0.0], [7.0]])
    ]
    masked = [[1.0, 0.0], [1.0, -1.0]], [[np.log(3.0), 0.0], [7.0, 9.0]]
    for metric, batch in zip(metrics[2:], (ragged, masked), strict=True):
        # The best has 3/4, an only item has 1, and both are right.
        metric.update_state(*batch)
        assert_error(metric, (1 / 4 + 0) / 2, 1e-5)
