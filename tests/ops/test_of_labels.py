"""Ranks with the columns that a metric reads give what ranks with all columns give."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import rank4class_tf as r4c
from rank4class_tf.ops import ranks

PROPENSITIES = np.linspace(0.1, 1, 60).tolist()
METRICS: dict[str, Callable] = {
    "ndcg": lambda: r4c.metrics.NDCG([1, 3, 7], gain="linear"),
    "dcg": lambda: r4c.metrics.DCG(3),
    "precision": lambda: r4c.metrics.PrecisionAtK([2, 5]),
    "recall": lambda: r4c.metrics.RecallAtK([2, 5]),
    "micro_recall": lambda: r4c.metrics.RecallAtK(5, average="micro"),
    "average_precision": lambda: r4c.metrics.AveragePrecisionAtK([3, 5]),
    "top_k_accuracy": lambda: r4c.metrics.TopKAccuracy([1, 4]),
    "mrr": lambda: r4c.metrics.MRR(3),
    "mean_rank": r4c.metrics.MeanRank,
    "median_rank": r4c.metrics.MedianRank,
    "bpref": lambda: r4c.metrics.BPref([2, 5]),
    "ps_ndcg": lambda: r4c.metrics.PropensityScoredNDCG(5, PROPENSITIES),
    "propensity_scored_precision": lambda: r4c.metrics.PropensityScoredPrecisionAtK(
        5, PROPENSITIES
    ),
}


def batch(rng, ties, positives, n=60):
    """Graded lists: some scores are NaN, some items masked, some lists without a positive."""
    scores = rng.normal(size=(9, n))
    if ties:
        scores = np.round(scores * ties) / ties
    scores[rng.uniform(size=scores.shape) < 0.05] = np.nan
    scores[1] = np.where(rng.uniform(size=n) < 0.3, -np.inf, scores[1])
    labels = rng.integers(1, 4, scores.shape) * (rng.uniform(size=scores.shape) < positives)
    labels[2] = 0
    labels[rng.uniform(size=scores.shape) < 0.1] = -1
    return labels.astype(np.float32), scores.astype(np.float32)


@pytest.mark.parametrize("positives", [0.02, 0.6])
@pytest.mark.parametrize("ties", [None, 0.5, 3], ids=["no_ties", "many_ties", "some_ties"])
@pytest.mark.parametrize(
    ("name", "xla"), [*((n, False) for n in METRICS), ("ndcg", True), ("mrr", True)]
)
def test_fewer_columns_change_nothing(name, ties, positives, xla, rng):
    metric = METRICS[name]()
    labels, scores = batch(rng, ties, positives)
    function = tf.function(metric.per_list, jit_compile=xla, autograph=False)
    values, weights = function(labels, scores)
    ids = np.where(labels > 0, np.arange(60), -1)
    of_all = r4c.ops.ranks_of_positives(scores, ids, labels, labels >= 0)
    of_all, weights_of_all = metric.per_list(of_all._replace(class_ids=ids), None)
    np.testing.assert_allclose(values, of_all, rtol=1e-12)
    np.testing.assert_array_equal(weights, weights_of_all)


def test_the_short_way_is_taken(rng, monkeypatch):
    labels, scores = batch(rng, None, 0.6)
    monkeypatch.setattr(ranks, "over_positives", None)  # Reads all positives.
    for metric in (r4c.metrics.NDCG(5), r4c.metrics.MRR()):
        metric.update_state(labels, scores)
