"""RecallAtK against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from rank4class_tf.metrics import RecallAtK

from .results import result


@pytest.mark.parametrize("k", [1, 3, 11])
def test_of_one_positive_it_is_the_accuracy_of_scikit_learn(scores, rng, k):
    ids = rng.integers(0, 12, 40)
    expected = sklearn_metrics.top_k_accuracy_score(ids, scores, k=k, labels=range(12))
    np.testing.assert_allclose(result(RecallAtK(k, dtype="float64"), ids, scores), expected)


def test_micro_recall_counts_positives_alike(rng):
    scores = rng.normal(size=(9, 7)).astype(np.float32)
    labels = (rng.random((9, 7)) < 0.4).astype(int)
    predicted = np.zeros_like(labels)
    np.put_along_axis(predicted, np.argsort(-scores, axis=1)[:, :3], 1, axis=1)
    for average, theirs in (("micro", "micro"), ("samples", "samples")):
        metric = RecallAtK(3, average=average, dtype="float64")
        metric.update_state(labels, scores)
        some = labels.sum(axis=1) > 0
        expected = sklearn_metrics.recall_score(labels[some], predicted[some], average=theirs)
        np.testing.assert_allclose(metric.result(), expected, rtol=1e-12)
        assert RecallAtK.from_config(metric.get_config()).average == average
    with pytest.raises(ValueError, match="`average` must be"):
        RecallAtK(3, average="weighted")


def test_without_a_cutoff_only_a_missing_score_is_no_hit():
    assert float(result(RecallAtK(), [[0, 2]], [[3.0, 1.0, np.nan]])) == 1 / 2
    assert float(result(RecallAtK(), [[0, 1]], [[3.0, 1.0, np.nan]])) == 1
