"""MeanRank against SciPy."""

import numpy as np
from scipy import stats

from rank4class_tf.metrics import MeanRank

from .results import result


def test_equals_the_mean_rank_of_scipy(scores, rng):
    scores = np.floor(scores / 80)  # SciPy gives tied items their mean rank, too.
    ids = rng.integers(0, 12, 40)
    ranks = stats.rankdata(-scores, axis=1)[np.arange(40), ids]
    actual = result(MeanRank(dtype="float64"), ids, scores)
    np.testing.assert_allclose(actual, ranks.mean(), rtol=1e-12)


def test_a_score_that_is_nan_has_the_last_rank():
    assert float(result(MeanRank(), [0], [[np.nan, 1.0, 2.0]])) == 3
