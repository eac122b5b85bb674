"""The Sparsemax loss against entmax."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf.losses import SparsemaxLoss

from .formula import value_of


def test_against_entmax(rng):
    torch = pytest.importorskip("torch", reason="the extra `oracles` is not installed")
    entmax = pytest.importorskip("entmax", reason="the extra `oracles` is not installed")
    z, ids = rng.normal(size=(20, 300)) * 2, rng.integers(0, 300, 20)
    theirs = torch.tensor(z, requires_grad=True)
    scores = tf.constant(z)
    loss = entmax.SparsemaxLoss(reduction="none")(theirs, torch.tensor(ids))
    (gradient,) = torch.autograd.grad(loss.sum(), theirs)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = value_of(SparsemaxLoss(), scores, ids[:, None])
    np.testing.assert_allclose(value, loss.detach().numpy(), atol=1e-9)
    np.testing.assert_allclose(tape.gradient(value, scores), gradient.numpy(), atol=1e-9)
