"""Several metrics against TF-Ranking and ir-measures."""

import numpy as np
import pytest

import rank4class_tf as r4c

from ..tf_ranking import load_or_skip
from .results import result


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
        (r4c.metrics.TopKAccuracy(k), ir.Success @ k),
    ):
        expected = ir.calc_aggregate([measure], judged, run)[measure]
        np.testing.assert_allclose(result(metric, binary, scores), expected, rtol=1e-5)
