"""PrecisionAtK against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from rank4class_tf.metrics import PrecisionAtK

from .results import result


@pytest.mark.parametrize("k", [1, 3, 12])
def test_equals_scikit_learn(scores, relevance, k):
    predicted = np.zeros_like(relevance)
    np.put_along_axis(predicted, np.argsort(-scores, axis=1)[:, :k], 1, axis=1)
    expected = sklearn_metrics.precision_score(relevance > 0, predicted > 0, average="samples")
    actual = result(PrecisionAtK(k, dtype="float64"), relevance, scores)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_the_divisor_is_k_even_for_shorter_lists():
    assert float(result(PrecisionAtK(4), [[0, 2]], [[3.0, 1.0, 2.0]])) == 2 / 4


def test_without_a_cutoff_it_is_the_share_of_positives(scores, relevance):
    relevance[:, 5:] = -1
    actual = result(PrecisionAtK(dtype="float64"), relevance, scores)
    np.testing.assert_allclose(actual, (relevance[:, :5] > 0).sum(axis=1).mean() / 5)
    several = result(PrecisionAtK([2, None]), relevance, scores)
    np.testing.assert_allclose(several["precision"], actual, rtol=1e-6)
