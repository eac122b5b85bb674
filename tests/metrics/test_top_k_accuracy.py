"""TopKAccuracy against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from rank4class_tf import metrics
from rank4class_tf.metrics import TopKAccuracy

from .results import result


@pytest.mark.parametrize("k", [1, 3, 11])
def test_equals_scikit_learn(scores, rng, k):
    ids = rng.integers(0, 12, 40)
    expected = sklearn_metrics.top_k_accuracy_score(ids, scores, k=k, labels=range(12))
    np.testing.assert_allclose(result(TopKAccuracy(k, dtype="float64"), ids, scores), expected)


def test_the_hit_rate_is_the_same_metric():
    assert metrics.HitRate is TopKAccuracy
    assert metrics.get("hit_rate_at_3").get_config() == TopKAccuracy(3).get_config()
