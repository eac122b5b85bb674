"""AveragePrecisionAtK against scikit-learn."""

import numpy as np
from sklearn import metrics as sklearn_metrics

from rank4class_tf.metrics import AveragePrecisionAtK

from .results import result


def test_equals_scikit_learn(scores, relevance):
    binary = (relevance > 0).astype(int)
    actual = result(AveragePrecisionAtK(dtype="float64"), relevance, scores)
    expected = [
        sklearn_metrics.average_precision_score(*lists)
        for lists in zip(binary, scores, strict=True)
    ]
    np.testing.assert_allclose(actual, np.mean(expected), rtol=1e-12)
