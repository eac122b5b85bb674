"""What comes in at the edges: wide integers, Keras's masks, one-item lists, huge weights."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from tensorflow import keras

from rank4class_tf import losses, metrics

SECONDS = 1_700_000_000 + np.array([[0, 1, 2, 3]])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_integers_that_float32_cannot_hold(dtype):
    metric = metrics.MRR()
    metric.update_state([3], SECONDS.astype(dtype))
    assert float(metric.result()) == 1
    expected = np.log(np.exp([-3.0, -2.0, -1.0, 0.0]).sum())
    loss = losses.SoftmaxLoss()([3], SECONDS.astype(dtype))
    assert float(loss) == pytest.approx(expected, rel=1e-6)


def test_metrics_of_datasets_keep_the_digits_of_their_dtype():
    values = 1.7e9 + np.arange(10)
    metric = metrics.SpearmanCorrelation(dtype="float64")
    metric.update_state(values, np.arange(10.0))
    assert float(metric.result()) == pytest.approx(stats.spearmanr(values, np.arange(10))[0])
    labels = np.arange(10) < 5
    metric = metrics.MeanAveragePrecision(1, dtype="float64")
    metric.update_state(labels.astype(float), 1 - np.geomspace(1e-9, 1e-7, 10))
    assert float(metric.result()) == 1
    with pytest.raises(ValueError, match=r"at most 2\*\*24"):
        metrics.SpearmanCorrelation().update_state(SECONDS[0], np.arange(4.0))


class Scores(keras.layers.Layer):
    """The numbers of the items, with the mask that came with them."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, x):
        return tf.squeeze(x, -1)

    def compute_mask(self, x, mask=None):
        return mask


@pytest.mark.keras2
@pytest.mark.parametrize("loss", [losses.SoftmaxLoss(), losses.RankmaxLoss()], ids=lambda x: x.name)
def test_items_that_keras_masks_are_absent(loss):
    embedding = keras.layers.Embedding(4, 1, mask_zero=True)
    inputs = keras.Input((3,), dtype="int32")
    model = keras.Model(inputs, Scores()(embedding(inputs)))
    embedding.set_weights([np.array([[9.0], [1.0], [2.0], [3.0]])])
    ndcg = metrics.NDCG(2, name="weighted")
    model.compile("sgd", loss, metrics=[metrics.MRR()], weighted_metrics=[ndcg])
    x, ids, weight = np.array([[1, 2, 0], [3, 1, 0]]), np.array([1, 1]), np.array([2.0, 1.0])
    found = model.evaluate(x, ids, sample_weight=weight, verbose=0, return_dict=True)
    of_lists = [float(loss([1], [scores])) for scores in ([1.0, 2.0], [3.0, 1.0])]
    assert found["loss"] == pytest.approx(np.mean(weight * of_lists), rel=1e-6)
    assert found["mrr"] == pytest.approx((1 + 1 / 2) / 2)
    expected = (2 * 1 + 1 / np.log2(3)) / 3
    assert found["weighted"] == pytest.approx(expected, rel=1e-6)


def test_a_mask_of_another_shape_raises():
    scores = tf.constant([[1.0, 2.0]])
    scores._keras_mask = tf.constant([True])
    for function in (losses.SoftmaxLoss(), metrics.MRR().update_state):
        with pytest.raises(ValueError, match="mask that comes with `y_pred`"):
            function([0], scores)


def test_a_float_of_a_list_of_one_item_is_relevance():
    for label, expected in ((0.0, 0), (2.0, 1), (0, 1)):  # The last one is an id.
        metric = metrics.NDCG(count_empty=True)
        metric.update_state(np.array([[label]]), np.array([[0.3]]))
        assert float(metric.result()) == expected


def test_the_unit_of_item_weights_changes_nothing():
    labels, scores, weights = [[2.0, 1.0, 0.0]], [[1.0, 2.0, 3.0]], np.array([[1.0, 2.0, 1.0]])
    gains, discounts = np.array([3.0, 2.0, 0.0]), 1 / np.log2([2, 3, 4])
    expected = gains[::-1] @ discounts / (gains @ discounts)
    for unit in (1, 1e38, 1e-30):
        values, _ = metrics.NDCG(3).per_list(labels, scores, unit * weights)
        np.testing.assert_allclose(values, [[expected]], rtol=1e-6)


def test_forms_that_peers_use():
    assert metrics.get("hits_at_5").k == 5
    loss = losses.SoftmaxLoss(reduction="mean_with_sample_weight", dtype="float64")
    value = loss([0, 1], [[1.0, 2.0], [3.0, 4.0]], sample_weight=[1.0, 3.0])
    expected = (np.log1p(np.e) + 3 * np.log1p(1 / np.e)) / 4
    assert value.dtype == tf.float64 and float(value) == pytest.approx(expected, rel=1e-6)
    again = losses.SoftmaxLoss.from_config(loss.get_config())
    assert (again.reduction, again.dtype) == (loss.reduction, "float64")


def test_ids_beyond_float32():
    scores = np.zeros((1, 2**24 + 3), np.float32)
    scores[0, 2**24 + 1] = 1.0
    loss = losses.RankmaxLoss(margin=0.5)
    assert loss(np.array([2**24 + 1]), scores) == 0.0  # Nothing else within the margin.
    assert loss(np.array([2**24]), scores) > 1.0
