"""SpearmanLoss against SciPy, and what training with it does."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, losses

from .exact_sorter import ExactSorter, ranks


@pytest.mark.parametrize("axis", ["batch", "items"])
def test_spearman_loss_is_the_correlation(axis, rng):
    labels, outputs = rng.normal(size=(2, 30, 7))
    loss = losses.SpearmanLoss(ExactSorter(), axis, reduction="none")(labels, outputs)
    assert loss.shape == (30,)
    lists = (
        zip(labels.T, outputs.T, strict=True)
        if axis == "batch"
        else zip(labels, outputs, strict=True)
    )
    d = 30 if axis == "batch" else 7
    correlations = [scipy.stats.spearmanr(y, s).statistic for y, s in lists]
    expected = np.mean((1 - np.array(correlations)) * (d**2 - 1) / (6 * d**2))
    np.testing.assert_allclose(np.mean(loss), expected, rtol=1e-5)


def test_equal_labels_share_their_mean_rank(rng):
    labels, outputs = rng.integers(0, 3, size=20).astype(float), rng.normal(size=20)
    loss = losses.SpearmanLoss(ExactSorter())(labels, outputs[:, np.newaxis])
    np.testing.assert_allclose(
        loss, np.mean((ranks(labels) - ranks(outputs)) ** 2) / 400, rtol=1e-6
    )


def test_training_orders_what_mse_does_not(rng):
    """Labels in which few are huge: their order is a matter of ranks."""
    features = rng.normal(size=(256, 5)).astype(np.float32)
    signal = features @ np.array([1.0, -2.0, 0.5, 0, 1], np.float32)
    labels = np.exp(3 * signal)

    def spearman(loss):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.05), loss=loss)
        model.fit(features, labels, batch_size=64, epochs=40, verbose=0)
        return scipy.stats.spearmanr(labels, model.predict(features, verbose=0)[:, 0]).statistic

    by_ranks = spearman(losses.SpearmanLoss(layers.LaplaceSorter()))
    assert by_ranks > 0.97
    assert by_ranks > spearman("mse") + 0.05


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_large_labels_keep_their_order(dtype):
    labels = np.array([1_700_000_000, 1_700_000_001], dtype)
    loss = losses.SpearmanLoss(layers.LaplaceSorter(0.01))
    np.testing.assert_allclose(loss(labels, np.float32([1, 0])), 0.25, rtol=1e-6)


@pytest.mark.parametrize("sorter", [layers.SigmoidSorter, layers.LaplaceSorter])
def test_batches_of_any_size_of_one_output(sorter, rng):
    loss = losses.SpearmanLoss(sorter())
    spec = tf.TensorSpec([None, 1])
    compute = tf.function(loss, input_signature=[spec, spec])
    for size in (5, 9):
        labels, outputs = rng.normal(size=(2, size, 1)).astype(np.float32)
        np.testing.assert_allclose(compute(labels, outputs), loss(labels, outputs), rtol=1e-5)
