"""Soft ranks of the positives, against their definition in NumPy."""

import numpy as np

from rank4class_tf import ops

from ..losses import oracles


def test_soft_ranks_among_positives(rng):
    scores, ids = rng.normal(size=(1, 8)), np.array([[6, 1, -1, 3]])
    ranks = ops.sigmoid_ranks_among_positives(scores, ids, temperature=0.4)
    expected = oracles.soft_ranks(scores[0, [6, 1, 3]], 0.4)
    np.testing.assert_allclose(ranks.numpy()[0, [0, 1, 3]], expected, rtol=1e-12)
