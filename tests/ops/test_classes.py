"""What heads are made of, against their formulas in float64: values, gradients, XLA."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from rank4class_tf import ops
from rank4class_tf.ops import blocks
from rank4class_tf.ops.blocks import score_by_recomputed_blocks

from ..derivatives import with_gradients
from ..rounding import assert_all_close


def value_and_gradients(function, inputs, upstream, **options):
    def step(*inputs):
        return with_gradients(lambda: function(*inputs), *inputs, upstream=upstream)

    return tf.function(step, **options)(*inputs)


@pytest.mark.often("graph", "0")
@pytest.mark.parametrize("options", [{}, {"jit_compile": True}], ids=["graph", "xla"])
@pytest.mark.parametrize("n, units", [(7, 3), (3, 5)])
@pytest.mark.parametrize("batch", [4, 1, 0])
def test_latent_cross(batch, n, units, options, rng, monkeypatch):
    # The way for many classes: n >= units.
    monkeypatch.setattr(blocks, "_MANY_ENTRIES", 1)
    inputs = [tf.constant(rng.normal(size=s)) for s in ((batch, 6), (n, 6), (6, units))]
    upstream = tf.constant(rng.normal(size=(batch, n, units)))
    h, c, w = (x.numpy() for x in inputs)
    up = upstream.numpy()
    expected = [
        np.einsum("bd,nd,du->bnu", h, 1 + c, w),
        np.einsum("bnu,nd,du->bd", up, 1 + c, w),
        np.einsum("bnu,bd,du->nd", up, h, w),
        np.einsum("bnu,bd,nd->du", up, h, 1 + c),
    ]
    results = value_and_gradients(blocks.latent_cross, inputs, upstream, **options)
    assert_all_close(results, expected, 1e-9, 1e-9)
    assert results[0].shape == (batch, n, units)


def test_latent_cross_of_own_candidates(rng):
    h, c, w = (rng.normal(size=s) for s in ((2, 6), (2, 7, 6), (6, 3)))
    ours = blocks.latent_cross(*map(tf.constant, (h, c, w)))
    assert_allclose(ours, np.einsum("bd,bnd,du->bnu", h, 1 + c, w), rtol=1e-9)


def score(candidates, block, shared):
    del block
    encodings = shared["h"]
    kernel = shared["w"]
    return tf.reduce_sum(
        tf.tanh(blocks.latent_cross(encodings, candidates, kernel)), axis=-1
    )


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}], ids=["graph", "xla"])
@pytest.mark.parametrize("n", [7, 12])
@pytest.mark.parametrize("many", [1, 10**9])
def test_blocks_equal_plain(n, many, options, rng, monkeypatch):
    """Blocks of three, full and not; both ways of the latent cross within."""
    monkeypatch.setattr(blocks, "_MANY_ENTRIES", many)
    inputs = [tf.constant(rng.normal(size=s)) for s in ((n, 6), (4, 6), (6, 2))]
    upstream = tf.constant(rng.normal(size=(4, n)))

    def by_blocks(c, h, w):
        return score_by_recomputed_blocks(score, c, {"h": h, "w": w}, block_size=3)

    def plain(c, h, w):
        return score(c, 0, {"h": h, "w": w})

    specs = [tf.TensorSpec(s, tf.float64) for s in ([n, 6], [None, 6], [6, 2])]
    results = value_and_gradients(
        by_blocks, inputs, upstream, input_signature=specs, **options
    )
    expected = with_gradients(lambda: plain(*inputs), *inputs, upstream=upstream)
    assert results[0].shape == (4, n)
    assert_all_close(results, expected, 1e-9, 1e-9)


def test_blocks_are_told_apart():
    """Where random numbers depend on the block, the backward pass draws them again."""

    def noisy(candidates, block, shared):
        noise = ops.uniform(
            [2, tf.shape(candidates)[0]], ops.fold_in([1, 2], block), tf.float64
        )
        return tf.matmul(shared[0], candidates, transpose_b=True) * noise

    inputs = [tf.ones([7, 1], tf.float64), tf.ones([2, 1], tf.float64)]
    scores, of_candidates, of_encodings = value_and_gradients(
        lambda c, h: score_by_recomputed_blocks(noisy, c, [h], block_size=3),
        inputs,
        tf.ones([2, 7], tf.float64),
    )
    assert len(np.unique(scores)) == 14
    assert_allclose(of_candidates[:, 0], tf.reduce_sum(scores, axis=0))
    assert_allclose(of_encodings[:, 0], tf.reduce_sum(scores, axis=1))
