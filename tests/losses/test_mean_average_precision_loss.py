"""MeanAveragePrecisionLoss against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import layers, losses

from .exact_sorter import ExactSorter, ranks


@pytest.mark.parametrize("axis", ["batch", "items"])
def test_mean_average_precision_loss(axis, rng):
    labels = rng.integers(-1, 2, size=(12, 5))
    labels[:, 3] = 0  # A class without positives counts for nothing.
    labels[4] = -1
    outputs = rng.normal(size=(12, 5))
    loss = losses.MeanAveragePrecisionLoss(ExactSorter(), axis, reduction="none")(labels, outputs)
    lists = (labels.T, outputs.T) if axis == "batch" else (labels, outputs)
    means = []
    for y, s in zip(*lists, strict=True):
        valid = y >= 0
        of_positives = ranks(s[valid])[y[valid] > 0] / max(valid.sum(), 1)
        means.append(of_positives.mean() if len(of_positives) else np.nan)
    expected = np.nanmean(means) if axis == "batch" else np.mean(np.nan_to_num(means))
    np.testing.assert_allclose(np.mean(loss), expected, rtol=1e-5)


def test_masked_entries_do_not_count_in_the_alignment():
    loss = losses.MeanAveragePrecisionLoss(layers.LaplaceSorter(0.01), axis="items", alignment=1.0)
    expected = loss([[1.0, 0]], [[3.0, 1.0]])
    np.testing.assert_allclose(loss([[1.0, 0, -1, -1]], [[3.0, 1.0, 7, 7]]), expected, rtol=1e-6)
    # No gradient either, where such an output is no number.
    outputs = tf.constant([[3.0, 1.0, float("nan"), float("inf")]])
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        misalignment = loss.misalignment(tf.constant([[1.0, 0, -1, -1]]), outputs)
    np.testing.assert_allclose(tape.gradient(misalignment, outputs), [[0.5, 0.5, 0, 0]])
