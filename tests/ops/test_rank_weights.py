"""Weights of the ordered negatives, and those that stochastic negative mining expects."""

import math

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import ops


def test_expected_weights_of_many_classes():
    """Against exact binomials, and the two facts that lemma 2 states."""
    b, n = 50, 3000
    for weights in (ops.TopKWeights(4), ops.PowerLawWeights(1.0)):
        vartheta = weights.first(b, tf.float64).numpy()
        theta = ops.snm_expected_weights(weights, b, n).numpy()
        for j in (1, 2, 5, 40, 700, n):
            exact = sum(
                v * math.comb(j - 1, i) * math.comb(n - j, b - 1 - i) / math.comb(n, b)
                for i, v in enumerate(vartheta)
            )
            np.testing.assert_allclose(theta[j - 1], exact, rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(theta.sum(), vartheta.sum(), rtol=1e-9)
        assert (np.diff(theta) <= 1e-9 * theta[:-1]).all()
    of_top_4 = ops.snm_expected_weights(np.full(4, n / (4 * b)), b, n)
    np.testing.assert_allclose(of_top_4[:4], [1 / 4] * 4, rtol=1e-9)


def test_expected_weights_of_rescaled_top_k():
    """Lemma 2: a valid surrogate, the first k weights are 1 / k; uniform ones are 1."""
    theta = 30 / 7 * ops.snm_expected_weights(ops.TopKWeights(3), 7, 30).numpy()
    np.testing.assert_allclose(theta[:3], [1 / 3] * 3, rtol=1e-12)
    theta = 30 / 7 * ops.snm_expected_weights(ops.UniformWeights(), 7, 30).numpy()
    np.testing.assert_allclose(theta, np.ones(30), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.TopKWeights(0), r"`k` must be a positive integer. Received: k=0\."),
        (lambda: ops.TopKWeights(2, tail=-1.0), "`tail` must hold finite numbers >= 0"),
        (lambda: ops.PowerLawWeights(0.0), "`exponent` must be a finite number > 0"),
        (lambda: ops.StaircaseWeights([(3, 1.0), (2, 0.5)]), "`steps` must hold"),
        (lambda: ops.StaircaseWeights([]), "`steps` must hold"),
        (lambda: ops.StaircaseWeights([(3, np.nan)]), "`steps` must hold finite numbers >= 0"),
        (lambda: ops.get_rank_weights([]), "`rank_weights` must be a list"),
        (lambda: ops.get_rank_weights("top"), "`rank_weights` must be a list"),
        (lambda: ops.get_rank_weights([[1.0]]), "`rank_weights` must be a list"),
        (lambda: ops.get_rank_weights([1.0, -1.0]), "`rank_weights` must hold finite numbers >= 0"),
        (lambda: ops.snm_expected_weights([1.0], 4, 3), r"`num_sampled` must be in"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
