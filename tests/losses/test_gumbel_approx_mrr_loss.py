"""GumbelApproxMRRLoss against its definition."""

import numpy as np
import tensorflow as tf

from rank4class_tf import ops
from rank4class_tf.losses import GumbelApproxMRRLoss

from . import oracles
from .formula import value_of


def test_value_and_gradient_by_definition(rng):
    scores, labels = rng.normal(size=6), np.array([0, 1.0, 0, 2, 0, 0])
    loss = GumbelApproxMRRLoss(5, gumbel_temperature=0.8, temperature=0.3, seed=3)
    seeds = [ops.fold_in(loss.next_seed(), t) for t in range(5)]
    noise = [ops.gumbel_noise([1, 6], seed, tf.float64).numpy()[0] for seed in seeds]

    def oracle(s):
        return np.mean([oracles.approx_mrr((s + g) / 0.8, labels, 0.3) for g in noise])

    variable = tf.constant(scores[np.newaxis])
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = value_of(loss, variable, [[1, 3]], [[1.0, 2.0]])
    np.testing.assert_allclose(value[0], oracle(scores), rtol=1e-10)
    expected = oracles.gradient(oracle, scores)
    np.testing.assert_allclose(tape.gradient(value, variable)[0], expected, rtol=1e-5, atol=1e-8)
