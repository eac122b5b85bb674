"""MeanAveragePrecision against scikit-learn."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as sklearn_metrics

from rank4class_tf.metrics import MeanAveragePrecision

from .results import filled

make = functools.partial(MeanAveragePrecision, 4)


@pytest.mark.parametrize("weighted", [False, True])
def test_average_precision_is_that_of_scikit_learn(columns, weighted, rng):
    labels, scores = columns
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], 60) if weighted else None
    metric = filled(make, labels, scores, weights)
    expected = [
        sklearn_metrics.average_precision_score(
            labels[:, c] > 0, scores[:, c], sample_weight=weights
        )
        for c in range(4)
    ]
    np.testing.assert_allclose(metric.per_class(), expected, rtol=1e-12)
    np.testing.assert_allclose(metric.result(), np.mean(expected), rtol=1e-12)


def test_average_precision_leaves_out_what_is_not_known(columns):
    labels, scores = columns
    labels[:20, 2], labels[:, 3] = -1, 0
    scores[5, 0], labels[5, 0] = np.nan, 0
    metric = filled(make, labels, scores)
    last = np.where(np.isnan(scores), -100, scores)
    expected = [
        sklearn_metrics.average_precision_score(labels[keep:, c] > 0, last[keep:, c])
        for c, keep in ((0, 0), (1, 0), (2, 20))
    ]
    np.testing.assert_allclose(metric.per_class(), [*expected, np.nan], rtol=1e-12)
    np.testing.assert_allclose(metric.result(), np.mean(expected), rtol=1e-12)
    never = MeanAveragePrecision(1)
    never.update_state([[1], [0]], [[np.nan], [-np.inf]])
    assert float(never.result()) == 0


def test_labels_and_weights_that_are_nan():
    scores = tf.constant([[3.0, 1.0, 2.0]] * 3)
    labels = tf.constant([[1.0, 0.0, 1.0], [1.0, np.nan, 0.0], [0.0, 0.0, 0.0]])
    weights = tf.constant([[1.0, 1.0, np.nan], [1.0, 1.0, 1.0], [1.0, np.nan, 1.0]])
    value, counts = MeanAveragePrecision(3).compute(labels, scores, weights)
    assert np.isnan(value).all() and np.all(counts)
