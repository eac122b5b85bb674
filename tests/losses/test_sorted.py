"""The losses on ranks of outputs: against SciPy and NumPy, and what holds for all."""

import functools

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import layers, losses
from rank4class_tf._tf import raising

from .. import derivatives
from ..contract.tables import SORTER_LOSSES
from ..refused import assert_refused, refused, refused_in_graph
from ..rounding import assert_all_close

BY_LABELS = (losses.SpearmanLoss, losses.MeanAveragePrecisionLoss)
every_loss = pytest.mark.parametrize("case", SORTER_LOSSES)


@keras.utils.register_keras_serializable()
class ExactSorter(layers.Sorter):
    """Ranks by comparing all pairs; without a gradient."""

    def soft_ranks(self, scores, mask):
        above = scores[:, tf.newaxis] > scores[..., tf.newaxis]
        if mask is not None:
            above &= mask[:, tf.newaxis]
        return 1 + tf.reduce_sum(tf.cast(above, scores.dtype), axis=-1)


def ranks(values):
    return scipy.stats.rankdata(-np.asarray(values))


@pytest.mark.parametrize("axis", ["batch", "items"])
def test_spearman_is_the_correlation(axis, rng):
    labels, outputs = rng.normal(size=(2, 30, 7))
    loss = losses.SpearmanLoss(ExactSorter(), axis, reduction="none")(labels, outputs)
    assert loss.shape == (30,)
    lists = (labels.T, outputs.T) if axis == "batch" else (labels, outputs)
    d = 30 if axis == "batch" else 7
    correlations = [
        scipy.stats.spearmanr(y, s).statistic for y, s in zip(*lists, strict=True)
    ]
    expected = np.mean((1 - np.array(correlations)) * (d**2 - 1) / (6 * d**2))
    assert_allclose(np.mean(loss), expected, rtol=1e-5)


def test_equal_labels_share_their_mean_rank(rng):
    labels = rng.integers(0, 3, size=20).astype(float)
    outputs = rng.normal(size=20)
    loss = losses.SpearmanLoss(ExactSorter())(labels, outputs[:, None])
    expected = np.mean((ranks(labels) - ranks(outputs)) ** 2) / 400
    assert_allclose(loss, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_large_labels_keep_their_order(dtype):
    labels = np.array([1_700_000_000, 1_700_000_001], dtype)
    loss = losses.SpearmanLoss(layers.LaplaceSorter(0.01))
    assert_allclose(loss(labels, np.float32([1, 0])), 0.25, rtol=1e-6)


@pytest.mark.parametrize("axis", ["batch", "items"])
def test_mean_average_precision_by_definition(axis, rng):
    labels = rng.integers(-1, 2, size=(12, 5))
    labels[:, 3] = 0  # A class without positives counts for nothing.
    labels[4] = -1
    outputs = rng.normal(size=(12, 5))
    loss = losses.MeanAveragePrecisionLoss(ExactSorter(), axis, reduction="none")(
        labels, outputs
    )
    lists = (labels.T, outputs.T) if axis == "batch" else (labels, outputs)
    means = []
    for y, s in zip(*lists, strict=True):
        valid = y >= 0
        of_positives = ranks(s[valid])[y[valid] > 0] / max(valid.sum(), 1)
        means.append(of_positives.mean() if len(of_positives) else np.nan)
    expected = np.nanmean(means) if axis == "batch" else np.mean(np.nan_to_num(means))
    assert_allclose(np.mean(loss), expected, rtol=1e-5)


def test_masked_entries_do_not_count_in_the_alignment():
    loss = losses.MeanAveragePrecisionLoss(
        layers.LaplaceSorter(0.01), axis="items", alignment=1.0
    )
    expected = loss([[1.0, 0]], [[3.0, 1.0]])
    assert_allclose(loss([[1.0, 0, -1, -1]], [[3.0, 1.0, 7, 7]]), expected, rtol=1e-6)
    # No gradient either, where such an output is no number.
    misalignment = functools.partial(loss.misalignment, tf.constant([[1.0, 0, -1, -1]]))
    gradient = derivatives.gradient_of(misalignment, [[3.0, 1.0, np.nan, np.inf]])
    assert_allclose(gradient, [[0.5, 0.5, 0, 0]])


@pytest.mark.parametrize("margin", [None, 0.3])
def test_rank_triplets_by_definition(margin, rng):
    similarities = rng.normal(size=(9, 9))
    labels = np.array([0, 1, 2, 3, 4, 5, 6, 7, 0])
    loss = losses.RankTripletLoss(ExactSorter(), margin, reduction="none")(
        labels, similarities
    )
    expected = np.zeros(9)
    for matrix in (similarities, similarities.T):
        for i, row in enumerate(matrix):
            f = ranks(row) / 9
            expected[i] += max(
                0, (margin or 1 / 9) + f[i] - f[labels != labels[i]].min()
            )
    assert_allclose(loss, expected, rtol=1e-5, atol=1e-7)


def test_triplets_without_negatives_have_no_loss(jit_compile):
    loss = losses.RankTripletLoss(
        layers.LaplaceSorter(0.01), margin=1.5, reduction="none"
    )
    assert_array_equal(loss([0], [[3.0]]), [0.0])
    assert_array_equal(loss([4, 4], np.eye(2)), [0.0, 0.0])
    nobody = tf.zeros([0, 1], tf.int32), tf.zeros([0, 0])
    specs = [tf.TensorSpec([None, 1], tf.int32), tf.TensorSpec([None, None])]
    graph = tf.function(lambda *batch: loss(*batch), specs, jit_compile=jit_compile)
    assert loss(*nobody).shape == graph(*nobody).shape == (0,)


def test_alignment(normal):
    labels, outputs = normal(2, 10, 1)
    plain = losses.SpearmanLoss()(labels, outputs)
    variable = tf.Variable(0.5)
    loss = losses.SpearmanLoss(alignment=variable)
    copy = losses.get(keras.utils.serialize_keras_object(loss))
    graph = tf.function(loss)
    expected = 0.5 * np.mean(np.abs(outputs - labels))
    for use in (losses.SpearmanLoss(alignment=0.5), loss, copy, graph):
        assert_allclose(use(labels, outputs) - plain, expected, rtol=1e-5)
    variable.assign(0.0)
    assert_allclose(graph(labels, outputs), plain, rtol=1e-5)
    pairs = losses.RankTripletLoss(alignment=1.0)(np.arange(3), np.eye(3))
    assert_allclose(pairs, losses.RankTripletLoss()(np.arange(3), np.eye(3)))


def labels_and_outputs(case, rng):
    return case.labels(rng).astype("float32"), rng.normal(size=(8, case.width))


@every_loss
def test_saved_and_differentiated(case, rng):
    loss = case.make(sorter=layers.LaplaceSorter(0.3), reduction="none")
    labels, outputs = labels_and_outputs(case, rng)
    direction = rng.normal(size=outputs.shape)

    def value(outputs):
        return tf.reduce_mean(loss.call(labels, outputs))

    gradient = derivatives.gradient_of(value, outputs)
    slope = (
        value(outputs + 1e-6 * direction) - value(outputs - 1e-6 * direction)
    ) / 2e-6
    assert_allclose(np.sum(gradient * direction), slope, rtol=1e-5, atol=1e-8)
    again = losses.get(keras.utils.serialize_keras_object(loss))
    assert again.sorter.temperature == 0.3
    assert_allclose(again.call(labels, outputs), loss.call(labels, outputs))


@pytest.mark.parametrize("make", BY_LABELS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_labels_that_are_not_finite_raise_or_are_nan(make, bad, monkeypatch):
    batch = tf.constant([1.0, bad, 3.0]), tf.constant([1.0, 2.0, 3.0])
    rule = "`y_true` must hold finite numbers. Received:.*(nan|inf)"
    assert_refused(make(), rule, *batch)
    monkeypatch.setattr(raising, "in_xla", lambda: True)
    assert np.isnan(tf.function(make())(*batch))


@pytest.mark.parametrize("make", [*BY_LABELS, losses.RankTripletLoss])
def test_shapes_that_only_running_tells(make):
    signature = [tf.TensorSpec([None]), tf.TensorSpec([None, None])]
    labels = np.arange(2 if make is losses.RankTripletLoss else 3, dtype="float32")
    rule = "`y_true` must have|y_true. a number for each"
    with refused_in_graph(rule):
        tf.function(make(), input_signature=signature)(
            labels, np.eye(3, dtype="float32")
        )


@pytest.mark.often("graph")
@every_loss
def test_batches_whose_size_only_running_tells(case, jit_compile, rng):
    """As in `fit` if the last batch is smaller. Weights of one are not those of all."""
    loss = case.make(reduction="none")
    batch = labels_and_outputs(case, rng)
    batch = [tf.constant(x, tf.float64) for x in batch]
    square = case.name == "rank_triplet"
    shapes = [[None] * x.shape.rank if square else [None, *x.shape[1:]] for x in batch]
    specs = [tf.TensorSpec(shape, tf.float64) for shape in [*shapes, [None]]]

    def step(labels, outputs, weights):
        return derivatives.value_and_gradient(
            lambda x: loss(labels, x, weights), outputs
        )

    graph = tf.function(step, specs, jit_compile=jit_compile)
    for size in (8, 5):
        part = [
            x[:size, :size] if square and x.shape.rank == 2 else x[:size] for x in batch
        ]
        weights = tf.range(1, size + 1, dtype=tf.float64)
        assert_all_close(graph(*part, weights), step(*part, weights), 1e-9, 1e-12)
    with refused_in_graph("sample_weight.{1,2}must"):
        graph(*batch, tf.ones(1, tf.float64))


@every_loss
def test_weights_of_examples(case, rng):
    loss = case.make(reduction="none")
    batch = labels_and_outputs(case, rng)
    weights = np.arange(8.0)
    for form in (weights, weights[:, None]):
        assert_allclose(loss(*batch, sample_weight=form), loss(*batch) * weights)
    assert_allclose(loss(*batch, sample_weight=2.0), 2 * loss(*batch))
    for shape in ((8, 8), (1, 8), (3,), (3, 1), (8, 1, 1)):
        with refused("`sample_weight` must"):
            loss(*batch, sample_weight=np.ones(shape))
