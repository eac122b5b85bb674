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


@pytest.mark.parametrize("use_bias", [False, True])
def test_later_searches_are_those_of_the_first(use_bias):
    classes = r4c.layers.ClassTable(40_000, 4, use_bias=use_bias)
    layer = r4c.layers.SampledScores(classes, seed=0)
    encodings = tf.random.stateless_normal([3, 4], [1, 2])
    layer.build((None, 4))
    ids = tf.constant([[5, 39_999, -1], [7, 7, 8], [-1, -1, 20_000]])
    for exclude in (None, [[5, -1], [7, 39_999], [-1, -1]]):
        results, gradients = [], []
        for _ in range(4):
            with tf.GradientTape() as tape:
                tape.watch(encodings)
                best = layer.top_k(encodings, 7, exclude)
            results.append([*best, *layer.ranks(encodings, ids, exclude)])
            gradients.append(tape.gradient(best[0], encodings))
        for later, gradient in zip(results, gradients, strict=True):
            tf.nest.map_structure(np.testing.assert_array_equal, later, results[0])
            # The blocks are summed in another order.
            np.testing.assert_allclose(gradient, gradients[0], rtol=1e-5)
    assert len(graphs_of(layer._scores_of)) == 4
    scores, found = layer.top_k(encodings[:1], 2)
    np.testing.assert_array_equal(found, best[1][:1, :2])
    assert scores.shape == (1, 2)
    with pytest.raises(ValueError, match="k=40001"):
        layer.top_k(encodings, 40_001)
    with pytest.raises(ValueError, match="Received: np.int32.40000."):
        layer.ranks(encodings, tf.fill([3, 3], 40_000))


def test_searches_follow_the_classes():
    table = r4c.layers.ClassTable(3, 2)
    layer = r4c.layers.SampledScores(table, normalize=False, seed=0)
    layer.build((None, 2))
    encodings = tf.constant([[1.0, 0.0]])

    def best():
        return layer.top_k(encodings, 1)[1].numpy().item()

    for wanted in (1, 2):
        table.embeddings.assign(tf.one_hot([0], 2) * tf.one_hot(wanted, 3)[:, tf.newaxis])
        assert [best() for _ in range(4)] == [wanted] * 4
    table.add([[5.0, 0.0]])
    assert [best() for _ in range(4)] == [3] * 4
    table.embeddings.assign([[9.0, 0.0], [0, 0], [0, 0], [0, 0]])
    assert best() == 0


def test_searches_of_a_model_follow_its_index():
    tower = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Activation("linear")])
    model = r4c.models.TwoTower(tower, tower, normalize=False)
    for size in (4, 6, 5):
        model.index(tf.eye(size, 2)[::-1])
        for _ in range(4):
            scores, rows = model.top_k(tf.constant([[2.0, 1.0]]), 2)
            np.testing.assert_array_equal(rows, [[size - 1, size - 2]])
            np.testing.assert_array_equal(scores, [[2.0, 1.0]])


def test_encoders_of_classes_are_not_made_a_graph():
    calls = []

    class Encoder(tf.keras.layers.Layer):
        def call(self, inputs):
            calls.append(tf.executing_eagerly())
            return inputs

    layer = r4c.layers.SampledScores(r4c.layers.EncodedClasses(np.eye(3, dtype="f"), Encoder()))
    layer.build((None, 3))
    for _ in range(4):
        layer.top_k(tf.eye(3), 1)
    assert all(calls)
