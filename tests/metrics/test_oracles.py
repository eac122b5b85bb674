"""Metrics of lists against scikit-learn, SciPy, TF-Ranking and ir-measures."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from rank4class_tf import metrics

from ..tf_ranking import load_or_skip
from .results import result


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 3, 12, None])
@pytest.mark.parametrize(
    ("make", "theirs"), [(metrics.NDCG, sk.ndcg_score), (metrics.DCG, sk.dcg_score)]
)
def test_gains_are_those_of_scikit_learn(make, theirs, scores, relevance, k, ties):
    if ties:  # scikit-learn, too, averages over the orders of tied items.
        scores = np.floor(scores / 80)
    for gain, labels in (("linear", relevance), ("exponential", 2**relevance - 1)):
        found = result(make(k, gain=gain, dtype="float64"), relevance, scores)
        np.testing.assert_allclose(found, theirs(labels, scores, k=k), rtol=1e-12)


def test_average_precision_is_that_of_scikit_learn(scores, relevance):
    found = result(metrics.AveragePrecisionAtK(dtype="float64"), relevance, scores)
    lists = zip(relevance > 0, scores, strict=True)
    expected = np.mean([sk.average_precision_score(*one) for one in lists])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 3, 11])
def test_hits_are_those_of_scikit_learn(scores, relevance, rng, k):
    predicted = np.zeros_like(relevance)
    np.put_along_axis(predicted, np.argsort(-scores, axis=1)[:, :k], 1, axis=1)
    labels = relevance > 0
    ids = rng.integers(0, 12, 40)
    accuracy = sk.top_k_accuracy_score(ids, scores, k=k, labels=range(12))
    for metric, y_true, expected in (
        (
            metrics.PrecisionAtK(k, dtype="float64"),
            labels * 1,
            sk.precision_score(labels, predicted > 0, average="samples"),
        ),
        *(
            (
                metrics.RecallAtK(k, average=average, dtype="float64"),
                labels * 1,
                sk.recall_score(labels, predicted > 0, average=average),
            )
            for average in ("samples", "micro")
        ),
        (metrics.RecallAtK(k, dtype="float64"), ids, accuracy),
        (metrics.TopKAccuracy(k, dtype="float64"), ids, accuracy),
    ):
        np.testing.assert_allclose(result(metric, y_true, scores), expected, rtol=1e-12)
        copy = type(metric).from_config(metric.get_config())
        np.testing.assert_array_equal(result(copy, y_true, scores), metric.result())


def test_ranks_of_one_positive(scores, rng):
    ids = rng.integers(0, 12, 40)
    expected = sk.label_ranking_average_precision_score(np.eye(12)[ids], scores)
    np.testing.assert_allclose(result(metrics.MRR(dtype="float64"), ids, scores), expected)
    scores = np.floor(scores / 80)  # SciPy gives tied items their mean rank, too.
    ranks = stats.rankdata(-scores, axis=1)[np.arange(40), ids]
    found = result(metrics.MeanRank(dtype="float64"), ids, scores)
    np.testing.assert_allclose(found, ranks.mean(), rtol=1e-12)


THEIRS = {
    "NDCGMetric": metrics.NDCG,
    "DCGMetric": metrics.DCG,
    "MRRMetric": metrics.MRR,
    "PrecisionMetric": metrics.PrecisionAtK,
    "RecallMetric": metrics.RecallAtK,
    "HitsMetric": metrics.TopKAccuracy,
    "MeanAveragePrecisionMetric": lambda k: metrics.AveragePrecisionAtK(k, over_all_positives=True),
}


@pytest.mark.keras2
@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", THEIRS)
def test_equal_tf_ranking_without_ties(name, weighted, k, rng):
    theirs = getattr(load_or_skip().keras.metrics, name)
    scores = rng.permutation(40 * 12).reshape(40, 12).astype(np.float32)
    labels = rng.integers(0, 4, scores.shape).astype(np.float32)
    labels[:, 10:][rng.random((40, 2)) < 0.6] = -1
    labels[:, 3] = 1
    weights = rng.choice([0.0, 0.2, 1.0, 5.0], scores.shape).astype(np.float32)
    weights[:, 3:9] = rng.uniform(0.1, 2, (40, 6))
    batch = (labels, scores, weights) if weighted else (labels, scores)
    expected = float(result(theirs(topn=k), *batch))
    assert float(result(THEIRS[name](k), *batch)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.keras2
@pytest.mark.parametrize("k", [2, 5, None])
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_bpref_equals_tf_ranking(k, share, rng):
    load_or_skip()
    from tensorflow_ranking.python import metrics_impl

    scores = rng.permutation(40 * 12).reshape(40, 12).astype(np.float32)
    labels = (rng.random((40, 12)) < share).astype(np.float32)
    labels[:, 3] = 1
    labels[:, 9:][rng.random((40, 3)) < 0.5] = -1
    expected, _ = metrics_impl.BPrefMetric("bpref", k).compute(labels, scores)
    found = float(result(metrics.BPref(k), labels, scores))
    assert found == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize("k", [2, 5])
def test_equal_ir_measures_without_ties(scores, relevance, k):
    ir = pytest.importorskip("ir_measures")
    binary = (relevance > 0).astype(int)
    judged = [ir.Qrel(str(q), str(d), int(y)) for (q, d), y in np.ndenumerate(binary)]
    run = [ir.ScoredDoc(str(q), str(d), float(s)) for (q, d), s in np.ndenumerate(scores)]
    for metric, measure in (
        (metrics.PrecisionAtK(k), ir.P @ k),
        (metrics.RecallAtK(k), ir.R @ k),
        (metrics.MRR(k), ir.RR @ k),
        (metrics.NDCG(k), ir.nDCG @ k),
        (metrics.TopKAccuracy(k), ir.Success @ k),
    ):
        expected = ir.calc_aggregate([measure], judged, run)[measure]
        np.testing.assert_allclose(result(metric, binary, scores), expected, rtol=1e-5)
