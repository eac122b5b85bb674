"""Means over classes and other groups."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf.metrics import MRR, MacroAverage, MeanRank, TopKAccuracy


@pytest.fixture
def scores(rng):
    return rng.normal(size=(60, 5)).astype(np.float32)


@pytest.fixture
def ids(rng):
    return rng.choice(4, 60, p=[0.6, 0.2, 0.1, 0.1])  # class 4 has no example


def test_groups_and_weights(scores, ids, rng):
    groups, weights = rng.integers(-1, 3, 60), rng.random(60)
    metric = MacroAverage(MRR([1, None]), num_groups=3, dtype="float64")
    metric.update_state(ids, scores, weights, groups=groups)
    ranks = 1 + (scores > np.take_along_axis(scores, ids[:, None], 1)).sum(axis=1)
    for column, (name, values) in enumerate(
        {"macro_mrr_at_1": ranks == 1, "macro_mrr": 1 / ranks}.items()
    ):
        means = [np.average(values[groups == g], weights=weights[groups == g]) for g in range(3)]
        np.testing.assert_allclose(metric.group_means()[:, column], means, rtol=1e-12)
        np.testing.assert_allclose(metric.result()[name], np.mean(means), rtol=1e-12)


def test_several_positives_belong_to_each_class():
    metric = MacroAverage(MRR(), num_groups=3, dtype="float64")
    metric.update_state([[0, 2], [2, -1], [-1, -1]], [[3.0, 2.0, 1.0]] * 3)
    # The first list, of value 1, counts for the classes 0 and 2, the second, 1/3, for class 2.
    np.testing.assert_allclose(metric.group_means()[:, 0], [1, np.nan, (1 + 1 / 3) / 2])


def test_unknown_groups_raise_or_are_nan(scores, ids, as_for_xla):
    metric = MacroAverage(MRR(), num_groups=2)
    with pytest.raises(ValueError, match=r"`groups` must hold class ids in \[0, 2\)"):
        metric.update_state([0, 1, 3], scores[:3])
    tf.function(lambda: metric.update_state([0, 1, 3], scores[:3]) and None)()
    assert np.isnan(metric.result())
    metric.reset_state()
    assert float(metric.result()) == 0


@pytest.mark.parametrize(
    ("label_format", "labels", "weights"),
    [
        ("ids", [[0, 9], [1, -1]], None),
        ("relevance", np.array([[0, 0, np.nan], [0, 1, 0]]), None),
        ("relevance", np.array([[0, 0, np.inf], [0, 1, 0]]), None),
        ("ids", [[0, -1], [1, -1]], [np.nan, 1.0]),
    ],
)
def test_broken_labels_and_weights_are_nan_in_a_graph(label_format, labels, weights, as_for_xla):
    """Though the group of such a list is not known."""
    metric = MacroAverage(MRR(label_format=label_format), num_groups=3)
    batch = labels, [[3.0, 2.0, 1.0]] * 2, weights
    tf.function(lambda: metric.update_state(*batch) and None)()
    assert np.isnan(metric.result())


@pytest.mark.keras2
def test_in_keras(scores, ids):
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(5)])
    metric = MacroAverage(TopKAccuracy([1, 2]), num_groups=5)
    copy = r4c.metrics.get(keras.utils.serialize_keras_object(metric))
    assert copy.get_config() == metric.get_config()
    model.compile("sgd", r4c.losses.SoftmaxLoss(), metrics=[metric])
    logs = model.evaluate(scores, ids, verbose=0, return_dict=True)
    copy.update_state(ids, model.predict(scores, verbose=0))
    for k in (1, 2):
        name = f"macro_top_k_accuracy_at_{k}"
        np.testing.assert_allclose(logs[name], copy.result()[name], rtol=1e-6)


def test_direction_and_names_are_those_of_its_metric():
    for metric in (MeanRank(), MRR()):
        macro = MacroAverage(metric, 3)
        assert macro.higher_is_better == metric.higher_is_better
        assert macro._direction == metric._direction
    metric = MacroAverage(r4c.metrics.NDCG([1, 2]), 3, name="by_class")
    assert metric.result_names == ["by_class_at_1", "by_class_at_2"]


def test_groups_of_a_list_count_once_and_have_a_row_each():
    metric = MacroAverage(TopKAccuracy(1), 2)
    labels, scores = [[0, 0], [0, -1]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    metric.update_state(labels, scores, groups=[[0, 0], [0, -1]])
    assert float(metric.result()) == 0.5
    with pytest.raises(ValueError, match="`groups` must have a row for each list"):
        metric.update_state(labels, scores, groups=[0])

    ids, lists = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 3])

    @tf.function(input_signature=[ids, lists, ids])
    def step(labels, scores, groups):
        metric.update_state(labels, scores, groups=groups)

    with pytest.raises(tf.errors.InvalidArgumentError, match="`groups` must have a row"):
        step([0], tf.zeros([1, 3]), [0, 1, 1, 0])
