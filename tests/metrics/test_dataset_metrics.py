"""Metrics of whole columns of a dataset, against SciPy and scikit-learn."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from sklearn import metrics as sklearn_metrics
from tensorflow import keras

import rank4class_tf as r4c

N, C = 60, 4

MAKE = {
    "mean_average_precision": lambda **kw: r4c.metrics.MeanAveragePrecision(C, **kw),
    "spearman_correlation": lambda **kw: r4c.metrics.SpearmanCorrelation(C, **kw),
}
both = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


@pytest.fixture
def labels(rng):
    labels = (rng.random((N, C)) < 0.3).astype(np.float32)
    labels[:, 0] *= rng.integers(1, 4, N)
    return labels


@pytest.fixture
def scores(rng, labels):
    noisy = labels + rng.normal(size=(N, C))
    noisy[:, 1] = np.round(noisy[:, 1])
    return noisy.astype(np.float32)


def filled(make, labels, scores, weights=None, parts=3, **kwargs):
    metric = make(dtype="float64", **kwargs)
    for rows in np.array_split(np.arange(len(labels)), parts):
        metric.update_state(labels[rows], scores[rows], None if weights is None else weights[rows])
    return metric


@pytest.mark.parametrize("weighted", [False, True])
def test_average_precision_is_that_of_scikit_learn(labels, scores, weighted, rng):
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], N) if weighted else None
    metric = filled(MAKE["mean_average_precision"], labels, scores, weights)
    expected = [
        sklearn_metrics.average_precision_score(
            labels[:, c] > 0, scores[:, c], sample_weight=weights
        )
        for c in range(C)
    ]
    np.testing.assert_allclose(metric.per_class(), expected, rtol=1e-12)
    np.testing.assert_allclose(metric.result(), np.mean(expected), rtol=1e-12)


def test_average_precision_leaves_out_what_is_not_known(labels, scores):
    labels[:20, 2], labels[:, 3] = -1, 0
    scores[5, 0], labels[5, 0] = np.nan, 0
    metric = filled(MAKE["mean_average_precision"], labels, scores)
    last = np.where(np.isnan(scores), -100, scores)
    expected = [
        sklearn_metrics.average_precision_score(labels[keep:, c] > 0, last[keep:, c])
        for c, keep in ((0, 0), (1, 0), (2, 20))
    ]
    np.testing.assert_allclose(metric.per_class(), [*expected, np.nan], rtol=1e-12)
    np.testing.assert_allclose(metric.result(), np.mean(expected), rtol=1e-12)
    never = r4c.metrics.MeanAveragePrecision(1)
    never.update_state([[1], [0]], [[np.nan], [-np.inf]])
    assert float(never.result()) == 0


def test_spearman_is_that_of_scipy(rng, scores):
    targets = rng.normal(size=(N, C)) + scores
    targets[:, 2] = np.round(targets[:, 2])
    metric = filled(MAKE["spearman_correlation"], targets, scores)
    expected = [
        stats.spearmanr(np.float32(targets[:, c]), scores[:, c]).statistic for c in range(C)
    ]
    np.testing.assert_allclose(metric.per_output(), expected, rtol=1e-12)
    np.testing.assert_allclose(metric.result(), np.mean(expected), rtol=1e-12)
    targets[7, 0] = np.nan
    weights = (np.arange(N) % 5 > 0).astype(np.float32)
    metric = filled(MAKE["spearman_correlation"], targets, scores, weights)
    keep = (weights > 0) & ~np.isnan(targets[:, 0])
    expected = stats.spearmanr(np.float32(targets[keep, 0]), scores[keep, 0]).statistic
    np.testing.assert_allclose(metric.per_output()[0], expected, rtol=1e-12)


def test_spearman_of_constants_and_nan():
    metric = r4c.metrics.SpearmanCorrelation(4)
    y = np.arange(12.0).reshape(3, 4)
    targets, scores = y.copy(), y.copy()
    scores[:, 1] = 5
    targets[:, 2] = 5
    metric.update_state(targets, scores)
    np.testing.assert_allclose(metric.per_output(), [1, 0, np.nan, 1], rtol=1e-12)
    np.testing.assert_allclose(metric.result(), 2 / 3, rtol=1e-6)
    scores[1, 3] = np.nan
    metric.update_state(targets, scores)
    assert np.isnan(metric.result())


@pytest.mark.parametrize("name", MAKE)
def test_weights_that_are_nan_show(name, labels, scores):
    weights = np.ones(N)
    weights[7] = np.nan
    assert np.isnan(filled(MAKE[name], labels, scores, weights).result())


@pytest.mark.parametrize("shape", [None, [None, None], [None, 1], [None], []])
def test_weights_whose_shape_only_running_tells(shape, labels, scores):
    weights = np.arange(N, dtype=np.float32) if shape == [None] else np.full((N, 1), 2.0)
    weights = np.float32(2) if shape == [] else weights.astype(np.float32)
    metric, expected = MAKE["mean_average_precision"](), MAKE["mean_average_precision"]()
    specs = [tf.TensorSpec([None, C]), tf.TensorSpec([None, C]), tf.TensorSpec(shape)]
    # Keras 2 gives an operation, which no function returns.
    update = tf.function(lambda *batch: [metric.update_state(*batch), None][1], specs)
    update(labels, scores, weights)
    expected.update_state(labels, scores, weights)
    np.testing.assert_allclose(metric.result(), expected.result())
    if shape in (None, [None, None]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="`sample_weight` must"):
            update(labels, scores, np.ones((N, 2), np.float32))


def test_average_precision_of_labels_and_weights_that_are_nan():
    scores = [[3.0, 1.0, 2.0]] * 3
    relevance = [[1.0, 0.0, 1.0], [1.0, np.nan, 0.0], [0.0, 0.0, 0.0]]
    weights = [[1.0, 1.0, np.nan], [1.0, 1.0, 1.0], [1.0, np.nan, 1.0]]
    value, counts = r4c.ops.weighted_average_precision(relevance, scores, weights)
    assert np.isnan(value).all() and np.all(counts)


def test_spearman_of_single_lists(rng):
    targets, scores = rng.integers(0, 5, (2, 8, 11)).astype(float)
    mask = rng.random((8, 11)) < 0.8
    value, counts = r4c.ops.spearman_correlation(targets, scores, mask)
    assert counts.numpy().all()
    for row in range(8):
        expected = stats.spearmanr(targets[row, mask[row]], scores[row, mask[row]]).statistic
        np.testing.assert_allclose(value[row], expected, rtol=1e-12)


@both
def test_batches_reset_merge_and_config(make, labels, scores):
    whole = float(filled(make, labels, scores, parts=1).result())
    metric = filled(make, labels, scores, parts=7, max_examples=N)
    assert float(metric.result()) == whole
    metric.reset_state()
    assert float(metric.result()) == 0
    metric.update_state(labels[:0], scores[:0])
    others = [filled(make, labels[rows], scores[rows]) for rows in (slice(25), slice(25, N))]
    metric.merge_state(others)
    np.testing.assert_allclose(metric.result(), whole, rtol=1e-14)
    copy = r4c.metrics.get(keras.utils.serialize_keras_object(make(name="mine", max_examples=7)))
    assert copy.name == "mine" and copy.max_examples == 7 and type(copy) is type(metric)


@both
def test_too_many_examples(make, labels, scores):
    message = "`max_examples`=50 must be at least the number of examples. Received:.*60"
    with pytest.raises(ValueError, match=message):
        filled(make, labels, scores, max_examples=50)
    metric = make(max_examples=50)
    update = tf.function(lambda y, s: metric.update_state(y, s) and None)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        update(labels, scores)
    assert int(metric.count) == 0


@both
def test_too_many_examples_are_nan_for_xla(make, labels, scores, as_for_xla):
    metric = make(max_examples=50)
    tf.function(lambda y, s: metric.update_state(y, s) and None)(labels, scores)
    assert np.isnan(metric.result())


@both
def test_shapes_and_strategies(make, labels, scores, two_devices):
    with pytest.raises(ValueError, match=r"`y_pred` must have the shape \[batch, 4\]"):
        make().update_state(labels, scores[:, :2])
    with pytest.raises(ValueError, match="`max_examples` must be a positive integer"):
        make(max_examples=0)
    with two_devices.scope(), pytest.raises(ValueError, match="several replicas"):
        make()


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.once)])
def test_in_keras(labels, scores, jit_compile):
    model = keras.Sequential([keras.layers.Input((C,)), keras.layers.Dense(C)])
    metrics = [make(max_examples=N) for make in MAKE.values()]
    model.compile("sgd", "mse", metrics=metrics, jit_compile=jit_compile)
    logs = model.evaluate(scores, labels, batch_size=30, verbose=0, return_dict=True)
    predicted = model.predict(scores, verbose=0)
    for name, make in MAKE.items():
        expected = filled(make, labels, predicted).result()
        np.testing.assert_allclose(logs[name], expected, rtol=1e-5)


def test_whole_numbers_that_float32_does_not_hold_raise():
    metric = r4c.metrics.SpearmanCorrelation()
    for name, batch in {"y_true": ([2**24 + 1], [0.5]), "y_pred": ([0.5], [-(2**40)])}.items():
        with pytest.raises(
            ValueError, match=rf"`{name}` must hold whole numbers of at most 2\*\*24"
        ):
            metric.update_state(*map(np.array, batch))


def test_one_output_needs_no_column(rng):
    y, s = rng.normal(size=(2, 9))
    metric = r4c.metrics.get("spearman_correlation", dtype="float64")
    metric.update_state(y, s)
    metric.update_state(y[:, None], s[:, None])
    expected = stats.spearmanr(np.tile(y, 2), np.tile(s, 2)).statistic
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (([1.0, 2.0], [1.0, 2.0, 3.0]), "`y_true` must have the shape of `y_pred`"),
        (([1.0, 2.0], [1.0, 2.0], [1.0]), "`sample_weight` must have a weight for each example"),
        (
            ([1.0, 2.0], [1.0, 2.0], [1.0] * 3),
            "`sample_weight` must have a weight for each example",
        ),
    ],
)
def test_batches_of_different_sizes(batch, message):
    with pytest.raises(ValueError, match=message):
        r4c.metrics.SpearmanCorrelation().update_state(*batch)
