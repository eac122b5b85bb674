"""What the sets of `PredictionSets` are made of, against NumPy."""

import numpy as np
import tensorflow as tf

from rank4class_tf.layers import PredictionSets


def mass_not_above(probabilities):
    """What the method "aps" asks for."""
    sets = PredictionSets(0.5, "aps", probabilities=tf.identity)
    return sets.conformity(tf.constant(probabilities))


def test_mass_not_above(rng):
    p = rng.dirichlet(np.ones(9), size=20)
    p[0] = [0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625, 0.125, 0.0, 0.0]  # Exact sums with ties.
    expected = [[(row * (row <= x)).sum() for x in row] for row in p]
    np.testing.assert_allclose(mass_not_above(p), expected, rtol=1e-12)


def test_small_masses_keep_their_digits():
    p = np.float32([[1.0, 1e-20, 3e-30, 1e-30]])
    np.testing.assert_allclose(mass_not_above(p)[0, 1:], [1e-20, 4e-30, 1e-30], rtol=1e-6)
