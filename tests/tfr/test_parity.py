"""Names that this package shares with TF-Ranking mean the same; where they differ, by how much."""

import numpy as np
import pytest

from tests import tf_ranking

_tfr = tf_ranking.load_or_skip()

from rank4class_tf.tfr import _names  # noqa: E402

LIST_SIZE = 7
# What TF-Ranking's value is multiplied with: its mean of a pairwise loss is over the items of all
# lists, ours over the lists.
LOSSES = {
    "approx_mrr_loss": 1,
    "approx_ndcg_loss": 1,
    "pairwise_hinge_loss": LIST_SIZE,
    "pairwise_logistic_loss": LIST_SIZE,
    "softmax_loss": 1,
    "unique_softmax_loss": 1,
}
# Ours with TF-Ranking's name for it.
METRICS = {
    "ndcg": "ndcg",
    "ndcg@3": "ndcg@3",
    "dcg": "dcg",
    "dcg@3": "dcg@3",
    "mrr": "mrr",
    "mrr@2": "mrr@2",
    "precision@3": "precision@3",
    "average_precision": "map",
    "top_k_accuracy@2": "hits@2",
}


def make_batch(rng, grades):
    """Scores without ties and labels up to `grades`, with padding; each list has a positive."""
    scores = rng.permutation(40 * LIST_SIZE).reshape(40, LIST_SIZE).astype(np.float32) / 50
    labels = rng.integers(0, grades + 1, size=scores.shape).astype(np.float32)
    labels[:, 0] = grades
    labels[:, -2:][rng.random((40, 2)) < 0.6] = -1
    return labels, scores


@pytest.mark.parametrize("grades", [1, 4])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(rng, name, grades, weighted):
    labels, scores = make_batch(rng, grades)
    weights = rng.random((40, 1)).astype(np.float32) if weighted else None
    ours = _names.build_loss(name, "auto")(labels, scores, weights)
    theirs = _names.build_loss(f"tfr.{name}", "auto")(labels, scores, weights)
    assert float(ours) == pytest.approx(LOSSES[name] * float(theirs), rel=1e-5)


@pytest.mark.parametrize("ours", METRICS)
def test_metrics(rng, ours):
    values = []
    for name in (ours, f"tfr.{METRICS[ours]}"):
        metric = _names.build_metric(name, "")
        metric.update_state(*make_batch(np.random.default_rng(0), 1))
        values.append(float(metric.result()))
    assert values[0] == pytest.approx(values[1], rel=1e-5)
