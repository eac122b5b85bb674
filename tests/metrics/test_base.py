"""Cutoffs, names and empty lists, which the base handles for all metrics."""

import numpy as np
import pytest

import rank4class_tf as r4c


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, "5", [], [1, 1], [1, 0]])
def test_cutoffs_are_checked(bad):
    for metric in (r4c.metrics.NDCG, r4c.metrics.PrecisionAtK):
        with pytest.raises(ValueError, match="`k` must"):
            metric(k=bad)
    with pytest.raises(ValueError, match="`k` must be a positive integer"):
        r4c.metrics.TopKAccuracy(k=None)


def test_cutoffs_name_their_results():
    scores, ids = [[1.0, 3.0, 2.0]], [0]
    for metric, names in (
        (r4c.metrics.TopKAccuracy([1, 5]), ["top_k_accuracy_at_1", "top_k_accuracy_at_5"]),
        (r4c.metrics.NDCG([1, None]), ["ndcg_at_1", "ndcg"]),
        (r4c.metrics.PrecisionAtK([3]), ["precision_at_3"]),
        (r4c.metrics.MRR([1, 2], name="mine"), ["mine_at_1", "mine_at_2"]),
    ):
        copy = type(metric).from_config(metric.get_config())
        for m in (metric, copy):
            m.update_state(ids, scores)
            assert list(m.result()) == names
    assert r4c.metrics.PrecisionAtK(3).name == "precision_at_3"


@pytest.mark.parametrize("name", ["ndcg", "dcg", "mrr", "average_precision"])
def test_a_cutoff_beyond_the_list_takes_no_memory(name):
    ranks = r4c.ops.ranks_of_positives([[1.0, 2.0]], [[0]])
    far, near = (r4c.metrics.get(name, k=k).per_list(ranks, None)[0] for k in (2**40, 2))
    np.testing.assert_array_equal(far, near)


def test_a_cutoff_may_be_an_integer_of_numpy():
    scores = [[2.0, 1.0, 0.0]]
    values = [r4c.metrics.NDCG(k).per_list([1], scores)[0] for k in (None, np.int64(3))]
    np.testing.assert_array_equal(*values)


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
