"""Metrics of soft ranks against their definitions."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import ops

from . import listwise_oracles as oracles


def test_smooth_metrics_of_exact_ranks_are_the_metrics(rng):
    scores, labels = rng.normal(size=8), np.array([0, 2.0, 0, 1.0, 0, 0, 3.0, 0])
    ids = np.flatnonzero(labels)
    ranks, y = oracles.exact_ranks(scores)[ids], labels[ids]
    among = oracles.exact_ranks(scores[ids])
    np.testing.assert_allclose(ops.soft_ndcg([ranks], [y]), oracles.ndcg(ranks, y))
    np.testing.assert_allclose(ops.expected_ranks(scores[None], ids[None])[0], ranks)
    order = np.argsort(-scores)
    hits = labels[order] > 0
    precisions = np.cumsum(hits) / np.arange(1, 9)
    np.testing.assert_allclose(
        ops.soft_average_precision([ranks], [among], [y]), precisions[hits].mean()
    )
    np.testing.assert_allclose(ops.soft_reciprocal_rank([ranks], [y]), (y / ranks).sum() / y.sum())
    for k in range(1, 9):
        found = ops.soft_recall([ranks], [y], k, temperature=1e-3)
        np.testing.assert_allclose(found, hits[:k].mean() * k / 3, atol=1e-12)


def test_soft_ranks_among_positives(rng):
    scores, ids = rng.normal(size=(1, 8)), np.array([[6, 1, -1, 3]])
    ranks = ops.sigmoid_ranks_among_positives(scores, ids, temperature=0.4)
    expected = oracles.soft_ranks(scores[0, [6, 1, 3]], 0.4)
    np.testing.assert_allclose(ranks.numpy()[0, [0, 1, 3]], expected, rtol=1e-12)


@pytest.mark.parametrize("metric", [ops.soft_ndcg, ops.soft_reciprocal_rank])
@pytest.mark.parametrize("width", [1, 2])
def test_smooth_metrics_of_the_best_ranks_are_1(metric, width):
    ranks = tf.tile([[1.0, 2.0][:width]], [40, 1])
    relevance = tf.tile([[2.0, 0.0][:width]], [40, 1])
    best = metric(ranks, relevance).numpy()
    np.testing.assert_array_max_ulp(best, np.ones(40, np.float32), maxulp=width - 1)
    assert np.isnan(metric(ranks[:1], [[np.nan, 1.0][:width]])).all()


def test_smooth_metrics_without_positives_are_zero():
    ranks, none = np.ones((1, 2)), np.zeros((1, 2))
    assert ops.soft_average_precision(ranks, ranks, none) == 0
    assert ops.soft_reciprocal_rank(ranks, none) == 0
    assert ops.soft_recall(ranks, none, 3) == 0
