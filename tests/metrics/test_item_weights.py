"""Weights of items in metrics, against plain Python."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from rank4class_tf import metrics

from ..contract.test_definitions import relevance_of
from .results import orders

pytestmark = pytest.mark.keras2


def gain(y):
    return 2.0**y - 1


def discounted(gains):
    return sum(g / np.log2(1 + rank) for rank, g in enumerate(gains, start=1))


def ndcg(order, k):
    gains = [w * gain(y) for y, w in order]
    return discounted(gains[:k]) / discounted(sorted(gains, reverse=True)[:k])


def dcg(order, k):
    gains = [w * gain(y) for y, w in order]
    weight = sum(gains) / sum(gain(y) for y, _ in order)
    return discounted(gains[:k]) / weight


def average_precision(order, k, over_all=False):
    weights = sorted((w for y, w in order if y > 0), reverse=True)
    total = hits = 0
    for rank, (y, w) in enumerate(order[:k], start=1):
        hits += y > 0
        total += w * (y > 0) * hits / rank
    return total / sum(weights if over_all else weights[:k])


def mrr(order, k):
    return max(
        [1 / rank for rank, (y, _) in enumerate(order[:k], start=1) if y > 0], default=0
    )


def hits(order, k):
    return sum(y > 0 for y, _ in order[:k])


# name -> how it is made, its value for `(label, weight)` in the order of scores, the
# cutoff, and the shares by which weights of positives are averaged.
CASES = {
    "ndcg": (metrics.NDCG, ndcg, gain),
    "dcg": (metrics.DCG, dcg, gain),
    "average_precision": (metrics.AveragePrecisionAtK, average_precision, np.sign),
    "average_precision_over_all": (
        lambda k, **kw: metrics.AveragePrecisionAtK(k, over_all_positives=True, **kw),
        lambda order, k: average_precision(order, k, over_all=True),
        np.sign,
    ),
    "mrr": (metrics.MRR, mrr, np.sign),
    "top_k_accuracy": (metrics.TopKAccuracy, lambda o, k: hits(o, k) > 0, np.sign),
    "precision": (metrics.PrecisionAtK, lambda o, k: hits(o, k) / k, np.sign),
    "recall": (metrics.RecallAtK, lambda o, k: hits(o, k) / hits(o, len(o)), np.sign),
}


every_metric = pytest.mark.parametrize("make, value, share", CASES.values(), ids=CASES)


@pytest.mark.parametrize("k", [1, 3, 6])
@every_metric
def test_definition(make, value, share, k, rng):
    """A list's value is the mean over orders of ties; items of weight 0 are out."""
    # With padding, grades and ties of scores; each list has a positive.
    labels = rng.integers(0, 3, (6, 6)).astype("float32")
    labels[:, 0] = 2
    labels[1, 4:] = -1
    scores = rng.integers(0, 4, labels.shape).astype("float32")
    weights = rng.choice([0.0, 0.5, 1.0, 4.0], labels.shape).astype("float32")
    weights[:, 0] = 0.5
    lists = (labels, scores, weights)
    values = []
    of_lists = []
    for row in zip(*lists, strict=True):
        y, s, w = (x[(row[0] >= 0) & (row[2] > 0)] for x in row)
        values.append(
            np.mean([value(order, k) for order in orders(s, zip(y, w, strict=True))])
        )
        of_lists.append(np.average(w, weights=[share(label) for label in y]))
    unknown = [tf.TensorSpec([None, None], tf.float32)] * 3
    per_list = make(k, label_format="relevance").per_list
    for compute in (per_list, tf.function(per_list, unknown, autograph=False)):
        found, weights = compute(*lists)
        assert_allclose(found[:, 0], values, rtol=1e-6)
        assert_allclose(weights, of_lists, rtol=1e-6)
    assert_allclose(make(k)(*lists), np.average(values, weights=of_lists), rtol=1e-5)


@every_metric
def test_long_lists_equal_short_ones(make, value, share, rng):
    """Items far below others change nothing, but long lists are counted otherwise."""
    labels = rng.integers(0, 3, (4, 30)).astype("float32")
    scores = rng.normal(size=(4, 30))
    weights = rng.random((4, 30))
    far = [[0, 0], [0, 500]]
    longer = (
        np.pad(labels, far),
        np.pad(scores, far, constant_values=-99),
        np.pad(weights, far),
    )
    longer[2][:, -1] = 1
    assert_allclose(make(5)(*longer), make(5)(labels, scores, weights), rtol=1e-6)


@every_metric
def test_ids_empty_lists_and_missing_numbers(make, value, share, rng):
    scores = rng.normal(size=(3, 7))
    weights = rng.random((3, 7))
    ids = np.array([[2, -1], [0, 6], [5, 3]])
    relevance = relevance_of(ids, 7)
    expected = make(3)(relevance, scores, weights)
    assert_allclose(make(3)(ids, scores, weights), expected, rtol=1e-6)
    without = weights.copy()
    without[0, 2] = 0  # The only positive.
    rest = make(3)(relevance[1:], scores[1:], weights[1:])
    assert_allclose(make(3)(ids, scores, without), rest, rtol=1e-6)
    weights[relevance == 0] = np.nan
    assert_allclose(make(3)(ids, scores, weights), expected, rtol=1e-6)
    weights[1, 0] = np.nan
    assert np.isnan(make(3)(ids, scores, weights))
