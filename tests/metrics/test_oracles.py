"""Metrics of lists against scikit-learn, TF-Ranking and ir-measures."""

import numpy as np
import pytest
from sklearn import metrics as sk

from rank4class_tf import metrics

from ..tf_ranking import load_or_skip
from .results import result


def test_micro_recall_is_that_of_scikit_learn(scores, relevance):
    predicted = np.zeros_like(relevance)
    np.put_along_axis(predicted, np.argsort(-scores, axis=1)[:, :3], 1, axis=1)
    labels, metric = relevance > 0, metrics.RecallAtK(3, average="micro", dtype="float64")
    expected = sk.recall_score(labels, predicted > 0, average="micro")
    for same in (metric, metrics.RecallAtK.from_config(metric.get_config())):
        np.testing.assert_allclose(result(same, labels * 1, scores), expected, rtol=1e-12)


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


def test_equal_ir_measures_without_ties(scores, relevance):
    ir = pytest.importorskip("ir_measures")
    binary = (relevance > 0).astype(int)
    judged = [ir.Qrel(str(q), str(d), int(y)) for (q, d), y in np.ndenumerate(binary)]
    run = [ir.ScoredDoc(str(q), str(d), float(s)) for (q, d), s in np.ndenumerate(scores)]
    for metric, measure in ((metrics.RecallAtK(2), ir.R @ 2), (metrics.NDCG(5), ir.nDCG @ 5)):
        expected = ir.calc_aggregate([measure], judged, run)[measure]
        np.testing.assert_allclose(result(metric, binary, scores), expected, rtol=1e-5)
