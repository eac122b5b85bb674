"""The metrics against scikit-learn, TF-Ranking and ir-measures."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

import rank4class_tf as r4c

from ..tf_ranking import load_or_skip


@pytest.fixture
def scores(rng):
    return rng.permutation(40 * 12).reshape(40, 12).astype(np.float32)


@pytest.fixture
def relevance(rng):
    labels = rng.choice([0.0, 0.0, 0.0, 1.0, 2.0], (40, 12))
    labels[:, 3] = 1
    return labels


def result(metric, y_true, y_pred):
    metric.update_state(y_true, y_pred)
    return metric.result()


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 3, 12, None])
def test_ndcg_and_dcg_equal_scikit_learn(scores, relevance, k, ties):
    if ties:  # scikit-learn, too, averages over the orders of tied items.
        scores = np.floor(scores / 80)
    for ours, theirs in (
        (r4c.metrics.NDCG, sklearn_metrics.ndcg_score),
        (r4c.metrics.DCG, sklearn_metrics.dcg_score),
    ):
        linear = result(ours(k, gain="linear", dtype="float64"), relevance, scores)
        np.testing.assert_allclose(linear, theirs(relevance, scores, k=k), rtol=1e-12)
        exponential = result(ours(k, dtype="float64"), relevance, scores)
        np.testing.assert_allclose(exponential, theirs(2**relevance - 1, scores, k=k), rtol=1e-12)


@pytest.mark.parametrize("k", [1, 3, 11])
def test_accuracy_equals_scikit_learn(scores, rng, k):
    ids = rng.integers(0, 12, 40)
    expected = sklearn_metrics.top_k_accuracy_score(ids, scores, k=k, labels=range(12))
    for metric in (r4c.metrics.TopKAccuracy, r4c.metrics.HitRate, r4c.metrics.RecallAtK):
        np.testing.assert_allclose(result(metric(k, dtype="float64"), ids, scores), expected)


def test_average_precision_equals_scikit_learn(scores, relevance):
    binary = (relevance > 0).astype(int)
    actual = result(r4c.metrics.AveragePrecisionAtK(dtype="float64"), relevance, scores)
    expected = [
        sklearn_metrics.average_precision_score(*lists)
        for lists in zip(binary, scores, strict=True)
    ]
    np.testing.assert_allclose(actual, np.mean(expected), rtol=1e-12)


def test_mrr_equals_scikit_learn_for_one_positive(scores, rng):
    ids = rng.integers(0, 12, 40)
    expected = sklearn_metrics.label_ranking_average_precision_score(np.eye(12)[ids], scores)
    np.testing.assert_allclose(result(r4c.metrics.MRR(dtype="float64"), ids, scores), expected)


@pytest.mark.parametrize("k", [2, 5, None])
def test_equal_tf_ranking_without_ties(scores, relevance, k):
    theirs = load_or_skip().keras.metrics
    relevance[:, 5] = -1
    binary = np.minimum(relevance, 1)
    for metric, peer, labels in (
        (r4c.metrics.NDCG(k), theirs.NDCGMetric(topn=k), relevance),
        (r4c.metrics.DCG(k), theirs.DCGMetric(topn=k), relevance),
        (r4c.metrics.MRR(k), theirs.MRRMetric(topn=k), binary),
        (r4c.metrics.PrecisionAtK(k or 11), theirs.PrecisionMetric(topn=k), binary),
        (r4c.metrics.RecallAtK(k or 11), theirs.RecallMetric(topn=k), binary),
    ):
        expected = result(peer, labels.astype(np.float32), scores)
        np.testing.assert_allclose(result(metric, labels, scores), expected, rtol=1e-5)


@pytest.mark.parametrize("k", [2, 5])
def test_equal_ir_measures_without_ties(scores, relevance, k):
    ir = pytest.importorskip("ir_measures")
    binary = (relevance > 0).astype(int)
    judged = [ir.Qrel(str(q), str(d), int(y)) for (q, d), y in np.ndenumerate(binary)]
    run = [ir.ScoredDoc(str(q), str(d), float(s)) for (q, d), s in np.ndenumerate(scores)]
    for metric, measure in (
        (r4c.metrics.PrecisionAtK(k), ir.P @ k),
        (r4c.metrics.RecallAtK(k), ir.R @ k),
        (r4c.metrics.MRR(k), ir.RR @ k),
        (r4c.metrics.NDCG(k), ir.nDCG @ k),
        (r4c.metrics.HitRate(k), ir.Success @ k),
    ):
        expected = ir.calc_aggregate([measure], judged, run)[measure]
        np.testing.assert_allclose(result(metric, binary, scores), expected, rtol=1e-5)


@pytest.mark.parametrize("form", ["ids", "relevance", "exclude", "ranks"])
@pytest.mark.parametrize("count_empty", [True, False])
def test_lists_without_positives_count_if_asked(form, count_empty):
    """The positives of lists 0 and 2 have rank 2, and `exclude` takes that of list 2 away."""
    scores, weights = np.float32([[3, 2, 1]] * 4), np.arange(1.0, 5)
    labels, exclude, values = np.array([[1], [-1], [1], [-1]]), None, [0.5, 0, 0.5, 0]
    if form == "relevance":
        labels = np.float32([[0, 1, 0], [0, 0, 0], [0, 1, 0], [-1, -1, -1]])
    elif form == "exclude":
        exclude, values = labels * [[-1], [1], [1], [1]], [0.5, 0, 0, 0]
    elif form == "ranks":
        labels, scores = r4c.ops.ranks_of_positives(scores, labels), None
    metric = r4c.metrics.MRR(count_empty=count_empty)
    metric = r4c.metrics.MRR.from_config(metric.get_config())
    counts = np.array([count_empty or value > 0 for value in values])
    for of_lists in (None, weights):
        metric.reset_state()
        metric.update_state(labels, scores, of_lists, exclude=exclude)
        expected = np.average(values, weights=(weights if of_lists is not None else 1) * counts)
        assert float(metric.result()) == pytest.approx(expected)
