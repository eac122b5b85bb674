"""ExpectedCalibrationError against NumPy, in Keras, over batches and devices."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special
from tensorflow import keras

from rank4class_tf import layers
from rank4class_tf.metrics import ExpectedCalibrationError, get


def reference(p, right, num_bins=15, weights=None):
    """By its definition, in float64; `right` is whether the best class is."""
    confidence = p.max(1)
    weights = np.ones(len(p)) if weights is None else weights
    error = 0.0
    for b in range(num_bins):
        inside = (confidence > b / num_bins) & (confidence <= (b + 1) / num_bins)
        error += abs((weights * (right - confidence))[inside].sum())
    return error / weights.sum()


@pytest.fixture
def data(rng):
    """Scores and ids of 90 examples and 6 classes."""
    scores = 2 * rng.normal(size=(90, 6))
    return scores, rng.integers(0, 6, 90)


def shares(scores):
    return special.softmax(scores, axis=1)


@pytest.mark.parametrize("num_bins", [1, 7, 15])
def test_confidences_at_the_edges_of_bins(num_bins, rng):
    confidence, right = rng.uniform(size=300), rng.uniform(size=300) < 0.6
    confidence[:3] = 0.0, 1.0, 1 / num_bins
    weights = rng.uniform(size=300)
    edges = np.arange(num_bins + 1) / num_bins
    expected = 0.0
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        inside = (confidence > low) & (confidence <= high) | (low == 0) & (confidence == 0)
        if inside.any():
            w = weights[inside]
            gap = (w @ right[inside] - w @ confidence[inside]) / w.sum()
            expected += w.sum() / weights.sum() * abs(gap)
    metric = ExpectedCalibrationError(num_bins, dtype="float64")
    # The other class is below, so that a confidence of 0 is the highest one, too.
    metric.update_state(np.where(right, 0, 1), np.stack([confidence, confidence - 1], 1), weights)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("num_bins", [1, 15])
def test_against_numpy(num_bins, data, rng):
    scores, ids = data
    p, weights = shares(scores), rng.uniform(size=90)
    right = (p.argmax(1) == ids).astype(float)
    expected = reference(p, right, num_bins, weights)
    metric = ExpectedCalibrationError(num_bins, dtype="float64")
    for rows in np.array_split(np.arange(90), 4):
        metric.update_state(ids[rows], p[rows], weights[rows])
    assert float(metric.result()) == pytest.approx(expected, rel=1e-12)
    # The same from one-hot labels, from scores, and merged from two parts.
    others = [
        ExpectedCalibrationError(num_bins, probabilities=layers.Probabilities(dtype="float64"))
        for _ in range(2)
    ]
    for metric, rows in zip(others, np.array_split(np.arange(90), 2), strict=True):
        metric.update_state(np.eye(6)[ids[rows]], scores[rows], weights[rows])
    others[0].merge_state(others[1:])
    assert float(others[0].result()) == pytest.approx(expected, rel=1e-6)
    others[0].reset_state()
    assert float(others[0].result()) == 0


def test_labels_of_all_forms(data):
    scores, ids = data
    p = shares(scores)
    several = np.stack([ids, (ids + 1) % 6], axis=1)
    several[::2, 1] = -1
    right = (p.argmax(1)[:, np.newaxis] == several).any(1).astype(float)
    metric = ExpectedCalibrationError()
    metric.update_state(several, p)
    assert float(metric.result()) == pytest.approx(reference(p, right), rel=1e-6)
    # The best class of every list is masked: the next one counts.
    labels = np.eye(6)[ids]
    labels[np.arange(90), p.argmax(1)] = -1
    counted = (labels == 1).any(1)
    rest = np.where(labels < 0, 0, p)
    right = (rest.argmax(1) == ids).astype(float)
    metric.reset_state()
    metric.update_state(labels, p)
    assert float(metric.result()) == pytest.approx(
        reference(rest[counted], right[counted]), rel=1e-6
    )


def test_ties_count_in_expectation():
    metric = ExpectedCalibrationError()
    metric.update_state([0, 1, 2, 3], np.full([4, 4], 0.25))
    assert float(metric.result()) == 0
    metric.update_state([0], [[0.5, 0.5]])
    assert float(metric.result()) == 0


def test_scores_are_no_probabilities(data):
    scores, ids = data
    metric = ExpectedCalibrationError()
    message = "`y_pred` must be probabilities in .0, 1.; for scores, set `probabilities`"
    with pytest.raises(ValueError, match=message):
        metric.update_state(ids, scores)
    update = tf.function(lambda *args: metric.update_state(*args) and None)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        update(tf.constant(ids), tf.constant(scores))
    assert float(metric.result()) == 0
    # An example that does not count may have any.
    metric.update_state([0, -1], [[1.0, 0.0], [7.0, 0.0]])
    assert float(metric.result()) == 0


def test_scores_make_the_result_nan_for_xla(data, as_for_xla):
    scores, ids = data
    metric = ExpectedCalibrationError()
    tf.function(lambda *args: metric.update_state(*args) and None)(ids, tf.constant(scores))
    assert np.isnan(float(metric.result()))


def model_of(scores):
    """A compiled model that gives its features as scores, with the metric."""
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Activation("linear")])
    metric = ExpectedCalibrationError(probabilities=layers.Probabilities())
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=[metric])
    return model


def test_in_keras_and_on_two_devices(data, two_devices):
    scores, ids = data
    p = shares(scores)
    expected = reference(p, (p.argmax(1) == ids).astype(float))
    with two_devices.scope():
        models = [model_of(scores)]
    models.append(model_of(scores))
    for model in models:
        results = model.evaluate(scores, ids, batch_size=32, verbose=0, return_dict=True)
        assert results["expected_calibration_error"] == pytest.approx(expected, rel=1e-5)


def test_name_and_configuration():
    metric = get("expected_calibration_error", num_bins=9, probabilities=layers.Probabilities(0.5))
    assert not metric.higher_is_better
    copy = ExpectedCalibrationError.from_config(metric.get_config())
    assert (copy.num_bins, copy.probabilities.temperature, copy.name) == (9, 0.5, metric.name)
    with pytest.raises(ValueError, match="`num_bins` must be a positive integer"):
        ExpectedCalibrationError(0)


def test_scores_may_be_lists_and_integers():
    metric = ExpectedCalibrationError(probabilities=layers.Probabilities())
    metric.update_state([0, 1], [[1.0, 0.0], [0.0, 1.0]])
    of_numbers = float(metric.result())
    metric.reset_state()
    metric.update_state([0, 1], [[1, 0], [0, 1]])
    assert float(metric.result()) == of_numbers > 0


def test_probabilities_of_the_items_that_are_there():
    ragged = [tf.ragged.constant(x) for x in ([[1.0, 0.0], [1.0]], [[np.log(3.0), 0.0], [7.0]])]
    for batch in (ragged, ([[1.0, 0.0], [1.0, -1.0]], [[np.log(3.0), 0.0], [7.0, 9.0]])):
        metric = ExpectedCalibrationError(probabilities=layers.Probabilities())
        metric.update_state(*batch)  # The best has 3/4, an only item has 1, and both are right.
        assert float(metric.result()) == pytest.approx((1 / 4 + 0) / 2, rel=1e-5)
