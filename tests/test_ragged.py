"""Ragged scores with ragged relevance: as dense ones whose missing items are masked."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

from rank4class_tf import losses, metrics

from .contract.tables import FORMULAS, LOSSES, METRICS
from .refused import refused

pytestmark = pytest.mark.keras2

LENGTHS = [3, 1, 5, 2]


def ragged(values):
    return tf.RaggedTensor.from_row_lengths(tf.cast(values, tf.float32), LENGTHS)


@pytest.fixture
def lists(rng):
    labels = ragged([0, 2, 1, 1, 0, 0, 3, 1, 1, 0, 1])
    return labels, ragged(rng.normal(size=11)), ragged(rng.uniform(0.5, 2, size=11))


def dense(labels, scores, weights):
    return labels.to_tensor(-1), scores.to_tensor(9.0), weights.to_tensor(5.0)


def value_and_gradient(loss, labels, scores):
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = tf.reduce_sum(loss(labels, scores))
    return float(value), tape.gradient(value, scores)


@pytest.mark.parametrize("case", LOSSES)
@pytest.mark.base(FORMULAS)
def test_losses(case, lists):
    if case.random:
        pytest.skip("the noise depends on the number of items, present or not")
    labels, scores, _ = lists
    value, gradient = value_and_gradient(case.make(), labels, scores)
    expected, of_dense = value_and_gradient(case.make(), *dense(*lists)[:2])
    assert_allclose(value, expected, rtol=1e-6)
    assert_allclose(gradient.to_tensor(), of_dense, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", METRICS)
def test_metrics(case, lists):
    results = []
    for batch in (lists, dense(*lists)):
        metric = case.make(label_format="relevance")
        metric.update_state(*batch[:2])
        results.append(np.stack(tf.nest.flatten(metric(*batch))))
    assert_allclose(*results, rtol=1e-6)


def test_graph_of_any_batch_and_weights(lists):
    loss = losses.PairwiseHingeLoss(reduction="none")
    of_lists = np.float32([1, 2, 0, 3])
    specs = [tf.RaggedTensorSpec([None, None], tf.float32)] * 3
    graph = tf.function(loss, input_signature=specs, autograph=False)
    expected = loss(*dense(*lists))
    assert_allclose(graph(*lists), expected, rtol=1e-6)
    assert_allclose(graph(*(x[1:3] for x in lists)), expected[1:3], rtol=1e-6)
    assert_allclose(loss(*lists[:2], of_lists), loss(*lists[:2]) * of_lists, rtol=1e-6)


@pytest.mark.slow
def test_in_fit(lists):
    labels, scores, weights = lists

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.scale = keras.layers.Dense(
                1, use_bias=False, kernel_initializer="ones"
            )

        def call(self, x):
            return tf.ragged.map_flat_values(lambda v: self.scale(v[:, None])[:, 0], x)

    model = Model()
    model.compile("sgd", losses.SoftmaxLoss(), weighted_metrics=[metrics.NDCG(3)])
    dataset = tf.data.Dataset.from_tensors((scores, labels, weights))
    log = model.fit(dataset, shuffle=False, verbose=0).history
    assert_allclose(log["loss"][0], losses.SoftmaxLoss()(*lists), rtol=1e-5)
    assert_allclose(log["ndcg_at_3"][0], metrics.NDCG(3)(*lists), rtol=1e-5)


@pytest.mark.often("eager", "no lists")
@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("lengths", [[], [0, 0]], ids=["no lists", "no items"])
def test_lists_of_no_items_have_no_loss(lengths, in_graph):
    empty = tf.RaggedTensor.from_row_lengths(
        tf.zeros([0]), tf.constant(lengths, tf.int64)
    )
    for loss in (
        losses.SoftmaxLoss(),
        losses.PairwiseLogisticLoss(),
        losses.ListMLELoss(),
    ):
        compute = tf.function(loss, [empty._type_spec] * 2) if in_graph else loss
        assert float(compute(empty, empty)) == 0
        assert float(loss(empty, empty, empty)) == 0
    metric = metrics.NDCG(3)
    metric.update_state(empty, empty, empty)
    assert metric.per_list(empty, empty)[1].numpy().tolist() == [0.0] * len(lengths)


@pytest.mark.parametrize("of_scores", [tf.int32, tf.int64])
def test_splits_of_any_type(of_scores, lists):
    labels, scores, weights = (x.with_row_splits_dtype(tf.int32) for x in lists)
    scores = scores.with_row_splits_dtype(of_scores)
    for compute in (losses.SoftmaxLoss(), lambda *x: metrics.NDCG(3).per_list(*x)[0]):
        assert_allclose(compute(labels, scores, weights), compute(*lists), rtol=1e-6)


def test_labels_of_other_forms_raise(lists):
    labels, scores, _ = lists
    rule = (
        "`y_true` must hold ragged relevance, a label for each score, where "
        "`y_pred` is ragged"
    )
    for bad in ([0, 0, 1, 0], labels.to_tensor(-1), labels[:3], labels[::-1]):
        for use in (losses.SoftmaxLoss(), metrics.MRR().update_state):
            with refused(rule):
                use(bad, scores)
    with refused(rule):
        losses.SoftmaxLoss(label_format="ids")(labels, scores)
