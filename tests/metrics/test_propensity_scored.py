"""PropensityScoredPrecisionAtK and PropensityScoredNDCG against pyxclib's formulas."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import metrics

from ..rounding import assert_all_close
from ..small_models import linear

K = 12
METRICS = {
    "precision": metrics.PropensityScoredPrecisionAtK,
    "ndcg": metrics.PropensityScoredNDCG,
}
both = pytest.mark.parametrize("name", METRICS)


def of_xclib(name, scores, labels, weights, k):
    """`psprecision` and `psndcg` of its `xc_metrics`, at one cutoff, labels 0 and 1."""

    def mean_gain(ranked_by):
        gains = np.take_along_axis(
            labels * weights, np.argsort(-ranked_by, axis=1)[:, :k], axis=1
        )
        if name == "precision":
            return (gains.sum(axis=1) / k).mean()
        discounts = 1 / np.log2(np.arange(k) + 2)
        total = np.cumsum(1 / np.log2(np.arange(labels.shape[1]) + 2))
        # Its divisor of a point without labels is another, but its gain is 0.
        divisors = np.minimum(
            total[labels.sum(axis=1).astype(int) - 1], discounts.sum()
        )
        return ((gains * discounts).sum(axis=1) / divisors).mean()

    return mean_gain(scores) / mean_gain(labels * weights)


@pytest.fixture
def labels(rng):
    """Of 40 lists, some without a label and some with more than a cutoff."""
    return (rng.random((40, K)) < rng.random((40, 1)) * 0.6).astype("float32")


@pytest.fixture
def scores(normal):
    return normal(40, K)


@pytest.fixture
def shares(labels):
    return metrics.propensities(padded(labels), K)


def padded(labels):
    return np.where(labels > 0, np.arange(K), -1)


def test_propensities_are_those_of_xclib(labels):
    for a, b in ((0.55, 1.5), (0.5, 0.4), (0.6, 2.6)):
        scale = (np.log(40) - 1) * np.power(b + 1, a)
        inverse = 1.0 + scale * np.power(labels.sum(axis=0) + b, -a)
        assert_allclose(metrics.propensities(padded(labels), K, a, b), 1 / inverse)
    dataset = tf.data.Dataset.from_tensor_slices((labels, padded(labels))).batch(7)
    assert metrics.propensities(dataset, K) == metrics.propensities(padded(labels), K)
    ragged = tf.RaggedTensor.from_tensor(padded(labels), padding=-1)
    assert metrics.propensities(ragged, K) == metrics.propensities(padded(labels), K)


@both
@pytest.mark.parametrize("k", [1, 3, 5, K])
def test_equals_xclib_for_all_forms_of_labels(name, k, labels, scores, shares):
    expected = of_xclib(name, scores, labels, 1 / np.array(shares), k)
    ids = tf.RaggedTensor.from_tensor(padded(labels), padding=-1)
    for form in (labels, padded(labels)[:, ::-1], ids):
        metric = METRICS[name](
            k, shares, label_format=None if form is labels else "ids"
        )
        assert_allclose(metric(form, scores), expected, rtol=1e-6)
    wide = METRICS[name](k, shares, dtype="float64")
    assert_allclose(wide(labels, scores), expected, rtol=1e-12)


@both
def test_ties_count_in_expectation(name, rng):
    labels = np.array([[1, 0, 1, 1, 0.0]])
    weights = 1 / rng.uniform(0.1, 1, 5)
    scores = np.array([[2, 2, 1, 2, 0.0]])
    # Each order of the tied is as frequent as any other.
    orders = [
        scores + np.array([order]) / 10 for order in itertools.permutations(range(5))
    ]
    expected = np.mean([of_xclib(name, order, labels, weights, 2) for order in orders])
    metric = METRICS[name](2, 1 / weights, dtype="float64")
    assert_allclose(metric(labels, scores), expected, rtol=1e-12)


@both
def test_weights_and_excluded_items(name, labels, scores, shares, rng):
    weights = rng.integers(0, 3, 40)
    rows = np.repeat(np.arange(40), weights)
    once = METRICS[name](3, shares)(labels, scores, weights.astype("float32"))
    repeated = METRICS[name](3, shares)(labels[rows], scores[rows])
    assert_allclose(once, repeated, rtol=1e-6)
    metric = METRICS[name](3, shares, dtype="float64")
    left_out = metric(labels, scores, exclude=np.tile([[4]], (40, 1)))
    without = [np.delete(x, 4, axis=-1) for x in (labels, scores, 1 / np.array(shares))]
    expected = of_xclib(name, without[1], without[0], without[2], 3)
    assert_allclose(left_out, expected, rtol=1e-12)


@both
def test_of_the_ranks_of_a_model(name, labels, rng, normal):
    """`ExtremeClassifier` evaluates by class blocks, and tells the metric which."""
    encoder = linear(5, 6)
    model = r4c.models.ExtremeClassifier(encoder, K, 6, num_sampled=4, normalize=False)
    features = normal(40, 5)
    metric = METRICS[name](3, rng.uniform(0.1, 1, K))
    model.compile(
        r4c.optimizers.RowwiseSGD(0.1), r4c.losses.SoftmaxLoss(), metrics=[metric]
    )
    ids = -np.sort(-padded(labels), axis=1)[:, : K - 1]
    found = model.evaluate(features, ids, return_dict=True, verbose=0)
    scores, ids = (x.numpy() for x in model.top_k(features, K))
    by_class = np.take_along_axis(scores, np.argsort(ids, axis=1), axis=1)
    expected = of_xclib(name, by_class, labels, 1 / np.array(metric.propensities), 3)
    assert_allclose(found[metric.name], expected, rtol=1e-5)


@both
def test_graphs_and_a_round_trip(name, jit_compile, labels, scores, shares):
    metric = METRICS[name](3, shares)
    copy = keras.utils.deserialize_keras_object(
        keras.utils.serialize_keras_object(metric)
    )
    assert copy.get_config() == metric.get_config() and metric.name.endswith("_at_3")
    found = tf.function(copy.per_list, jit_compile=jit_compile)(labels, scores)
    assert_all_close(found, metric.per_list(labels, scores), 1e-10)


def test_a_label_that_is_no_class_is_nan_in_a_graph(shares, as_for_xla):
    metric = metrics.PropensityScoredNDCG(3, shares)
    values, weights = tf.function(metric.per_list)(
        np.array([0, K]), np.zeros([2, K], "float32")
    )
    assert np.isnan(values[:, 0]).tolist() == [False, True] and weights[1] == 1


def test_ranks_of_a_label_that_is_no_class_are_nan_under_xla(shares):
    """The label was left out, as padding is."""
    metric = metrics.PropensityScoredNDCG(3, shares)

    def per_list(class_ids):
        ones = tf.ones([2, 1])
        numbers = tf.fill([2], float(K))
        ranks = r4c.ops.Ranks(0 * ones, ones, ones, numbers, K, class_ids=class_ids)
        return metric.per_list(ranks, None)

    class_ids = tf.constant([[0], [K]])
    values, _ = tf.function(per_list, jit_compile=True)(class_ids)
    assert np.isnan(values[:, 0]).tolist() == [False, True]
