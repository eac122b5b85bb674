"""SpearmanCorrelation against SciPy."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from rank4class_tf.metrics import SpearmanCorrelation, get

from .results import filled

make = functools.partial(SpearmanCorrelation, 4)


def test_spearman_is_that_of_scipy(rng, columns):
    _, scores = columns
    targets = rng.normal(size=(60, 4)) + scores
    targets[:, 2] = np.round(targets[:, 2])
    metric = filled(make, targets, scores)
    expected = [
        stats.spearmanr(np.float32(targets[:, c]), scores[:, c]).statistic for c in range(4)
    ]
    np.testing.assert_allclose(metric.per_output(), expected, rtol=1e-12)
    np.testing.assert_allclose(metric.result(), np.mean(expected), rtol=1e-12)
    targets[7, 0] = np.nan
    weights = (np.arange(60) % 5 > 0).astype(np.float32)
    metric = filled(make, targets, scores, weights)
    keep = (weights > 0) & ~np.isnan(targets[:, 0])
    expected = stats.spearmanr(np.float32(targets[keep, 0]), scores[keep, 0]).statistic
    np.testing.assert_allclose(metric.per_output()[0], expected, rtol=1e-12)


def test_spearman_of_constants_and_nan():
    metric = SpearmanCorrelation(4)
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


def test_whole_numbers_that_float32_does_not_hold_raise():
    metric = SpearmanCorrelation()
    for name, batch in {"y_true": ([2**24 + 1], [0.5]), "y_pred": ([0.5], [-(2**40)])}.items():
        with pytest.raises(
            ValueError, match=rf"`{name}` must hold whole numbers of at most 2\*\*24"
        ):
            metric.update_state(*map(np.array, batch))


def test_one_output_needs_no_column(rng):
    y, s = rng.normal(size=(2, 9))
    metric = get("spearman_correlation", dtype="float64")
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
        SpearmanCorrelation().update_state(*batch)


def test_columns_with_examples_left_out(rng):
    targets, scores = rng.integers(0, 5, (2, 8, 11)).astype(float)
    mask = rng.random((8, 11)) < 0.8
    weights = mask.astype(float)
    value, counts = SpearmanCorrelation(8).compute(*map(tf.constant, (targets, scores, weights)))
    assert counts.numpy().all()
    for row in range(8):
        expected = stats.spearmanr(targets[row, mask[row]], scores[row, mask[row]]).statistic
        np.testing.assert_allclose(value[row], expected, rtol=1e-12)


def test_columns_of_no_examples():
    none = tf.zeros([2, 0])
    value, counts = SpearmanCorrelation(2).compute(none, none, none)
    np.testing.assert_array_equal([value, counts], np.zeros((2, 2)))
