"""Losses and metrics called eagerly run as graphs from the third call on: none can tell."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

import rank4class_tf as r4c
from rank4class_tf._tf import eager

from .contract.tables import LOSSES, METRICS

SCORES = tf.constant([[2.0, 1.0, 0.5, -1.0, 0.2, 0.9], [0.0, 1.0, 0.5, 3.0, 0.1, 0.7]])
IDS = tf.constant([0, 2])


def value_and_gradient(loss, labels, scores):
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(labels, scores)
    return value.numpy(), tape.gradient(value, scores).numpy()


def graphs_of(owner):
    return [x for x in eager._KNOWN.get(owner, {}).values() if not isinstance(x, int)]


@pytest.mark.parametrize("case", LOSSES, ids=lambda case: case.name)
def test_later_calls_of_a_loss_are_those_of_the_first(case):
    loss = case.make(reduction="none")
    first = value_and_gradient(loss, IDS, SCORES)
    for number in range(4):
        fresh = case.make(reduction="none")
        if case.random:  # A step that was taken before changes the draws of the next.
            fresh._state.assign(loss._state)
        for a, b in zip(
            value_and_gradient(loss, IDS, SCORES),
            value_and_gradient(fresh, IDS, SCORES) if case.random else first,
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7, err_msg=f"call {number}")
    assert graphs_of(loss)


@pytest.mark.parametrize("case", METRICS, ids=lambda case: case.name)
def test_later_updates_of_a_metric_count_as_the_first(case):
    metric, other = case.make(), case.make()
    for rows in ([0], [1], [0, 1], [1, 1, 0], [0]):
        batch = tf.gather(IDS, rows), tf.gather(SCORES, rows)
        metric.update_state(*batch)
        other._add_batch(*batch, None, None)
    assert graphs_of(metric)
    np.testing.assert_allclose(metric.result(), other.result(), rtol=1e-6)


def test_errors_name_the_value_in_later_calls_too():
    loss, metric = r4c.losses.RankmaxLoss(), r4c.metrics.NDCG(2)
    for _ in range(4):
        loss(IDS, SCORES)
        metric.update_state(IDS, SCORES)
    before = float(metric.result())
    for function in (loss, metric.update_state):
        with pytest.raises(ValueError, match="Received: np.int32.7."):
            function(tf.constant([0, 7]), SCORES)
    assert float(metric.result()) == before


def test_a_changed_argument_is_seen():
    loss = r4c.losses.RankmaxLoss()
    for _ in range(4):
        loss(IDS, SCORES)
    loss.margin = 3.0
    assert not graphs_of(loss)
    expected = float(r4c.losses.RankmaxLoss(margin=3.0)(IDS, SCORES))
    np.testing.assert_allclose(loss(IDS, SCORES), expected, rtol=1e-6)


def test_code_of_a_user_is_not_made_a_graph():
    calls = []

    class Mine(r4c.losses.RankingLoss):
        def compute(self, lists):
            calls.append(lists.scores.numpy())
            return -lists.positive_scores[:, 0]

    class MyMetric(r4c.metrics.RankingMetric):
        def compute(self, ranks):
            calls.append(ranks.above.numpy())
            return [ranks.above[:, 0]]

    factor = [1.0]
    dcg = r4c.metrics.DCG(3, gain=lambda relevance: relevance * factor[0])

    def ranker(scores, mask):
        return tf.constant(1 + np.argsort(np.argsort(-scores.numpy())), scores.dtype)

    loss, metric, ranked = Mine(), MyMetric(), r4c.losses.ApproxNDCGLoss(ranker=ranker)
    for number in range(4):
        loss(IDS, SCORES)
        metric.update_state(IDS, SCORES)
        ranked(IDS, SCORES)
        assert len(calls) == 2 * (number + 1)
        dcg.update_state(IDS, SCORES)
    before, factor[0] = float(dcg.result()), 100.0
    dcg.reset_state()
    dcg.update_state(IDS, SCORES)
    np.testing.assert_allclose(dcg.result(), 100 * before, rtol=1e-5)


def test_run_functions_eagerly_and_many_shapes():
    loss = r4c.losses.SoftmaxLoss()
    tf.config.run_functions_eagerly(True)
    try:
        for _ in range(4):
            loss(IDS, SCORES)
    finally:
        tf.config.run_functions_eagerly(False)
    assert not graphs_of(loss)
    for n in range(2, 60):  # Lists of many lengths are not worth a graph each.
        loss([0], tf.zeros([1, n]))
    assert not graphs_of(loss)
    for _ in range(4):
        loss(IDS, SCORES)
        loss(IDS, SCORES, sample_weight=[1.0, 2.0])
    assert len(graphs_of(loss)) <= eager._MOST_GRAPHS


def test_ragged_labels_of_any_number_of_rows_share_a_graph():
    loss = r4c.losses.SoftmaxLoss()
    for rows in (1, 2, 3, 2, 1):
        ids = tf.RaggedTensor.from_row_lengths(tf.zeros([rows], tf.int32), [1] * rows)
        np.testing.assert_allclose(loss(ids, tf.zeros([rows, 4])), np.log(4), rtol=1e-6)
    assert len(graphs_of(loss)) == 1


def test_what_fails_as_a_graph_is_tried_once():
    calls = []

    class Owner:
        def method(self, x):
            calls.append(tf.executing_eagerly())
            return tf.constant(x.numpy() + 1)

    Owner.__module__ = "rank4class_tf.test"
    owner = Owner()
    for _ in range(6):
        assert float(eager.as_graph(owner, owner.method, 1.0)) == 2
    assert calls.count(False) == 1


def test_graphs_do_not_keep_their_owner():
    loss = r4c.losses.SoftmaxLoss()
    for _ in range(4):
        loss(IDS, SCORES)
    owner = weakref.ref(loss)
    del loss
    gc.collect()
    assert owner() is None
