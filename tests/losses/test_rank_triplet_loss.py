"""RankTripletLoss against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import layers, losses

from .exact_sorter import ExactSorter, ranks


@pytest.mark.parametrize("margin", [None, 0.3])
def test_rank_triplet_loss(margin, rng):
    similarities = rng.normal(size=(9, 9))
    labels = np.array([0, 1, 2, 3, 4, 5, 6, 7, 0])
    loss = losses.RankTripletLoss(ExactSorter(), margin, reduction="none")(labels, similarities)
    alpha = 1 / 9 if margin is None else margin
    expected = np.zeros(9)
    for matrix in (similarities, similarities.T):
        for i, row in enumerate(matrix):
            f = ranks(row) / 9
            negatives = f[labels != labels[i]]
            expected[i] += max(0, alpha + f[i] - negatives.min())
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("jit_compile", [None, False, True], ids=["eager", "graph", "xla"])
def test_triplets_of_no_examples(jit_compile):
    loss = losses.RankTripletLoss(reduction="none")
    batch = tf.zeros([0, 1], tf.int32), tf.zeros([0, 0])
    if jit_compile is not None:
        specs = [tf.TensorSpec([None, 1], tf.int32), tf.TensorSpec([None, None])]
        loss = tf.function(lambda *batch, f=loss: f(*batch), specs, jit_compile=jit_compile)
    assert loss(*batch).shape == (0,)


def test_a_row_without_negatives_has_no_loss():
    loss = losses.RankTripletLoss(layers.LaplaceSorter(0.01), margin=1.5, reduction="none")
    np.testing.assert_array_equal(loss([0], [[3.0]]), [0.0])
    np.testing.assert_array_equal(loss([4, 4], np.eye(2)), [0.0, 0.0])
