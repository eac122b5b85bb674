"""Counts of higher and tied values, by all routes, and the columns that a metric reads."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import rank4class_tf as r4c
from rank4class_tf.ops import ranks

from ..contract import tables


def count_above_and_tied(scores, ids, depth=None):
    found = ranks.ranks_of_positives(scores, ids, depth=depth)
    return found.above, found.tied


def counts(values, thresholds):
    compared = values[:, np.newaxis], thresholds[:, :, np.newaxis]
    return np.greater(*compared).sum(axis=-1), np.equal(*compared).sum(axis=-1)


@pytest.mark.parametrize("size", [1, 5, 60, 4095, 4096, 9001])
@pytest.mark.parametrize("width", [1, 3, 40])
@pytest.mark.parametrize("mode", ["graph", "any shape", "xla"])
def test_counts(rng, size, width, mode):
    values = np.round(rng.normal(size=(3, size)), 1).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = np.nan
    values[rng.random(values.shape) < 0.1] = -np.inf
    ids = np.stack([np.append(rng.permutation(size)[:width], -1) for _ in range(3)])
    ids = ids.astype(np.int32)
    positives = np.where(ids >= 0, np.take_along_axis(values, np.maximum(ids, 0), 1), np.nan)
    signature = [tf.TensorSpec([3, None]), tf.TensorSpec([3, None], tf.int32)]
    signature = signature if mode == "any shape" else None
    count = tf.function(count_above_and_tied, signature, jit_compile=mode == "xla" or None)
    for actual, expected in zip(count(values, ids), counts(values, positives), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_counts_of_all_items_under_xla(rng):
    """So many that no tensor of all pairs fits into memory."""
    scores = rng.permuted(np.tile(np.arange(10_000, dtype=np.float32), (256, 1)), axis=1)
    ids = np.tile(np.arange(10_000, dtype=np.int32), (256, 1))
    above, tied = tf.function(count_above_and_tied, jit_compile=True)(scores, ids)
    np.testing.assert_array_equal(above, 9_999 - scores)
    np.testing.assert_array_equal(tied, np.ones_like(scores))


PROPENSITIES = np.linspace(0.1, 1, 60).tolist()
METRICS: dict[str, Callable] = {
    **{case.name: case.make for case in tables.METRICS},
    "ndcg_of_several_cutoffs": lambda: r4c.metrics.NDCG([1, 3, 7], gain="linear"),
    "micro_recall": lambda: r4c.metrics.RecallAtK(5, average="micro"),
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
    ("name", "xla"), [*((n, False) for n in METRICS), ("ndcg_2", True), ("mrr_3", True)]
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
