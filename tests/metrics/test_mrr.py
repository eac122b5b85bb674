"""MRR against scikit-learn, and over millions of lists."""

import numpy as np
import tensorflow as tf
from sklearn import metrics as sklearn_metrics

from rank4class_tf.metrics import MRR

from .results import result


def test_equals_scikit_learn_for_one_positive(scores, rng):
    ids = rng.integers(0, 12, 40)
    expected = sklearn_metrics.label_ranking_average_precision_score(np.eye(12)[ids], scores)
    np.testing.assert_allclose(result(MRR(dtype="float64"), ids, scores), expected)


def test_sums_of_ten_million_lists():
    metric = MRR(dtype="float64")
    update = tf.function(lambda w: metric.update_state([0, 1], [[2.0, 1.0, 3.0]] * 2, w) and None)
    # Ranks 2 and 3: 10**7 lists as 100 batches of two lists that stand for 50,000 each.
    for _ in range(100):
        update(tf.constant([5e4, 5e4]))
    np.testing.assert_allclose(metric.result(), (1 / 2 + 1 / 3) / 2, rtol=1e-12)
