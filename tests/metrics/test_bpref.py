"""BPref against TF-Ranking and a worked example."""

import numpy as np
import pytest

from rank4class_tf.metrics import BPref

from ..tf_ranking import load_or_skip
from .results import result

pytestmark = pytest.mark.keras2


@pytest.mark.parametrize("k", [2, 5, None])
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_equals_tf_ranking(k, share, rng):
    load_or_skip()
    from tensorflow_ranking.python import metrics_impl

    scores = rng.permutation(40 * 12).reshape(40, 12).astype(np.float32)
    labels = (rng.random((40, 12)) < share).astype(np.float32)
    labels[:, 3] = 1
    labels[:, 9:][rng.random((40, 3)) < 0.5] = -1
    theirs = metrics_impl.BPrefMetric("bpref", k)
    expected, _ = theirs.compute(labels, scores)
    assert float(result(BPref(k), labels, scores)) == pytest.approx(np.mean(expected), rel=1e-5)


def test_items_that_nobody_judged_change_nothing():
    """R = 2, N = 2: one wrong item stands above the second positive."""
    labels = [[-1.0, 1.0, -1.0, 0.0, 1.0, -1.0, 0.0]]
    scores = [[7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]]
    assert float(result(BPref(), labels, scores)) == pytest.approx((1 + (1 - 1 / 2)) / 2)


def test_ties_count_half():
    value = result(BPref(), [[1.0, 0.0, 0.0]], [[1.0, 1.0, 0.0]])
    assert float(value) == pytest.approx(1 - 0.5)
