"""The soft forms of metrics against the metrics of exact ranks."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import ops


def exact_ranks(s):
    return 1.0 + (s > s[:, np.newaxis]).sum(axis=1)


def ndcg(ranks, y):
    def dcg(ranks, y):
        return np.sum((2**y - 1) / np.log2(1 + ranks))

    return dcg(ranks, y) / dcg(np.arange(1, len(y) + 1), -np.sort(-y))


def test_smooth_metrics_of_exact_ranks_are_the_metrics(rng):
    scores, labels = rng.normal(size=8), np.array([0, 2.0, 0, 1.0, 0, 0, 3.0, 0])
    ids = np.flatnonzero(labels)
    ranks, y = exact_ranks(scores)[ids], labels[ids]
    among = exact_ranks(scores[ids])
    np.testing.assert_allclose(ops.soft_ndcg([ranks], [y]), ndcg(ranks, y))
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


@pytest.mark.parametrize("width", [1, 2])
def test_gains_may_be_0_for_a_positive(width):
    """The metric of such a list is 0."""
    relevance = tf.constant([[1.0, 0.0], [3.0, 0.0]])[:, :width]
    found = ops.soft_ndcg(
        tf.ones([2, width]), relevance, gain=lambda labels: tf.cast(labels >= 2, labels.dtype)
    )
    np.testing.assert_array_equal(found, [0, 1])


def test_discounts_of_numpy_raise():
    """They would have no gradient."""
    with pytest.raises(ValueError, match="`discount` must return a tensor"):
        ops.soft_ndcg([[2.0]], [[1.0]], discount=lambda rank: 1 / np.log2(1 + rank))


@pytest.mark.parametrize("argument", ["gain", "discount"])
def test_gain_and_discount_are_checked(argument):
    for shape in ([1, 1], [1, 2]):
        with pytest.raises(ValueError, match=f"`{argument}` must be .*Received: 'nonsense'"):
            ops.soft_ndcg(tf.ones(shape), tf.ones(shape), **{argument: "nonsense"})


@pytest.mark.parametrize("argument", ["k", "temperature"])
@pytest.mark.parametrize("value", [-1, -0.5, float("nan"), float("inf"), "1", True])
def test_numbers_out_of_range_raise(argument, value):
    with pytest.raises(ValueError, match=f"`{argument}` must be .*{argument}={value!r}"):
        ops.soft_recall([[1.0]], [[1.0]], **{"k": 1, argument: value})
