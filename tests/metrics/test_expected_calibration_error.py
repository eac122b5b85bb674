"""ExpectedCalibrationError against NumPy, in Keras, over batches and devices."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special
from tensorflow import keras

from rank4class_tf import layers
from rank4class_tf.metrics import ExpectedCalibrationError, get

from .results import result


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
    assert float(metric.result()) == pytest.approx(expected, rel=rel)


@pytest.fixture
def data(rng):
    """Probabilities, scores and ids of 90 examples and 6 classes."""
    scores = 2 * rng.normal(size=(90, 6))
    return special.softmax(scores, axis=1), scores, rng.integers(0, 6, 90)


@pytest.mark.parametrize("num_bins", [1, 7, 15])
def test_confidences_at_the_edges_of_bins(num_bins, rng):
    confidence, right = rng.uniform(size=300), rng.uniform(size=300) < 0.6
    confidence[:3] = 0.0, 1.0, 1 / num_bins
    weights = rng.uniform(size=300)
    metric = ExpectedCalibrationError(num_bins, dtype="float64")
    # The other class is below, so that a confidence of 0 is the highest one, too.
    metric.update_state(np.where(right, 0, 1), np.stack([confidence, confidence - 1], 1), weights)
    assert_error(metric, reference(confidence[:, None], right, num_bins, weights), 1e-12)


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
    others = [ExpectedCalibrationError(num_bins, probabilities=probabilities) for _ in range(2)]
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
    assert_error(metric, reference(p, (p.argmax(1)[:, np.newaxis] == several).any(1)))
    # The best class of every list is masked: the next one counts.
    labels = np.eye(6)[ids]
    labels[np.arange(90), p.argmax(1)] = -1
    counted = (labels == 1).any(1)
    rest = np.where(labels < 0, 0, p)
    metric.reset_state()
    metric.update_state(labels, p)
    assert_error(metric, reference(rest[counted], (rest.argmax(1) == ids)[counted]))


def test_ties_count_in_expectation():
    metric = ExpectedCalibrationError()
    assert float(result(metric, [0, 1, 2, 3], np.full([4, 4], 0.25))) == 0
    assert float(result(metric, [0], [[0.5, 0.5]])) == 0


def test_scores_are_no_probabilities(data):
    _, scores, ids = data
    metric = ExpectedCalibrationError()
    message = "`y_pred` must be probabilities in .0, 1.; for scores, set `probabilities`"
    with pytest.raises(ValueError, match=message):
        metric.update_state(ids, scores)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.function(lambda *args: metric.update_state(*args) and None)(ids, tf.constant(scores))
    assert float(metric.result()) == 0
    # An example that does not count may have any.
    assert float(result(metric, [0, -1], [[1.0, 0.0], [7.0, 0.0]])) == 0


def test_scores_make_the_result_nan_for_xla(data, as_for_xla):
    _, scores, ids = data
    metric = ExpectedCalibrationError()
    tf.function(lambda *args: metric.update_state(*args) and None)(ids, tf.constant(scores))
    assert np.isnan(float(metric.result()))


def test_in_keras_and_on_two_devices(data, two_devices):
    p, scores, ids = data
    for scope in (two_devices.scope(), tf.distribute.get_strategy().scope()):
        with scope:
            model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Activation("linear")])
            metric = ExpectedCalibrationError(probabilities=layers.Probabilities())
            model.compile("sgd", "sparse_categorical_crossentropy", metrics=[metric])
        logs = model.evaluate(scores, ids, batch_size=32, verbose=0, return_dict=True)
        expected = reference(p, p.argmax(1) == ids)
        assert logs["expected_calibration_error"] == pytest.approx(expected, rel=1e-5)


def test_name_and_configuration():
    metric = get("expected_calibration_error", num_bins=9, probabilities=layers.Probabilities(0.5))
    assert not metric.higher_is_better
    copy = ExpectedCalibrationError.from_config(metric.get_config())
    assert (copy.num_bins, copy.probabilities.temperature, copy.name) == (9, 0.5, metric.name)


def test_scores_may_be_lists_integers_ragged_or_masked():
    metrics = [ExpectedCalibrationError(probabilities=layers.Probabilities()) for _ in range(4)]
    of_numbers = float(result(metrics[0], [0, 1], [[1.0, 0.0], [0.0, 1.0]]))
    assert float(result(metrics[1], [0, 1], [[1, 0], [0, 1]])) == of_numbers > 0
    ragged = [tf.ragged.constant(x) for x in ([[1.0, 0.0], [1.0]], [[np.log(3.0), 0.0], [7.0]])]
    masked = [[1.0, 0.0], [1.0, -1.0]], [[np.log(3.0), 0.0], [7.0, 9.0]]
    for metric, batch in zip(metrics[2:], (ragged, masked), strict=True):
        metric.update_state(*batch)  # The best has 3/4, an only item has 1, and both are right.
        assert_error(metric, (1 / 4 + 0) / 2, 1e-5)
