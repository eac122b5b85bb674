"""NDCG against scikit-learn, and at the edge of what it takes."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as sklearn_metrics

from rank4class_tf import ops
from rank4class_tf.metrics import NDCG

from .results import result


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 3, 12, None])
def test_equals_scikit_learn(scores, relevance, k, ties):
    if ties:  # scikit-learn, too, averages over the orders of tied items.
        scores = np.floor(scores / 80)
    linear = result(NDCG(k, gain="linear", dtype="float64"), relevance, scores)
    expected = sklearn_metrics.ndcg_score(relevance, scores, k=k)
    np.testing.assert_allclose(linear, expected, rtol=1e-12)
    exponential = result(NDCG(k, dtype="float64"), relevance, scores)
    expected = sklearn_metrics.ndcg_score(2**relevance - 1, scores, k=k)
    np.testing.assert_allclose(exponential, expected, rtol=1e-12)


@pytest.mark.parametrize("bad", ["cubic", 3])
def test_gain_is_checked(bad):
    with pytest.raises(ValueError, match="`gain` must be one of"):
        NDCG(gain=bad)


def test_discounts_of_numpy():
    """The exact metric takes them; the soft one does not, since they have no gradient."""

    def discount(rank):
        return 1 / np.log2(1 + rank)

    labels, scores = [[0]], [[1.0, 2.0]]
    expected = NDCG().per_list(labels, scores)[0]
    np.testing.assert_allclose(NDCG(discount=discount).per_list(labels, scores)[0], expected)


@pytest.mark.parametrize("ids", [[[0], [1]], [[0, -1], [1, -1]]], ids=["one column", "two"])
def test_gains_may_be_0_for_a_positive(ids):
    """The metric of such a list is 0."""
    relevance = np.zeros(np.shape(ids))
    relevance[:, 0] = [1, 3]
    ranks = ops.ranks_of_positives(tf.constant([[1.0, 2.0, 0.0]] * 2), ids, relevance)
    metric = NDCG(gain=lambda labels: tf.cast(labels >= 2, labels.dtype))
    np.testing.assert_array_equal(metric.compute_at(ranks, None), [0, 1])


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("gain", ["exponential", "linear"])
def test_no_ranks_and_no_positives(columns, gain):
    def ndcg(batch, relevance, max_items):
        counts = tf.zeros([batch, columns], tf.float64), tf.ones([batch, columns], tf.float64)
        relevance = tf.fill([batch, columns], tf.constant(relevance, tf.float64))
        ranks = ops.Ranks(*counts, relevance, tf.zeros([batch], tf.float64), max_items)
        return NDCG(gain=gain).compute_at(ranks, None)

    assert ndcg(0, 1, 3).shape == [0]
    np.testing.assert_array_equal(ndcg(2, 0, 0), [0, 0])
    np.testing.assert_array_equal(ndcg(2, 0, 3), [0, 0])
    assert np.isnan(ndcg(1, np.nan, 3)).all()


def test_lists_without_columns_of_positives():
    none = ops.ranks_of_positives([[2.0, 1.0, 0.0]] * 2, np.zeros((2, 0), int), np.zeros((2, 0)))
    np.testing.assert_array_equal(NDCG().compute_at(none, None), [0, 0])
