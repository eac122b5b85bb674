"""Counts, scores and interactions of all classes by blocks, and unit-length vectors."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf._tf.gather import within
from rank4class_tf._tf.loops import Arguments, in_pieces
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._tf.search import fold_scores
from rank4class_tf._types import (
    Array,
    Function,
    Size,
    Tensor,
    TensorPair,
    Tensors,
    WithGradient,
)
from rank4class_tf.ops.ranks import count_one_by_one


def count_others_by_blocks(
    score: Function,
    num_classes: int,
    class_ids: Tensor,
    id_scores: Tensor,
    block_size: Size,
    tolerance: Array = 0.0,
) -> TensorPair:
    """Counts other classes above and tied with ids `[batch, P]` up to a tolerance."""
    # `score` maps class ids `[m]` to scores `[batch, m]`. An id outside [0,
    # num_classes) is of a class that is not scored here, but whose score is compared as
    # well. Rounding these sums loses no score within the tolerance, since it keeps the
    # order of numbers. An infinite score ties only with its equal; the score of an
    # excluded class is -inf.
    dtype = id_scores.dtype
    is_finite = tf.math.is_finite(id_scores)

    def limit(shifted: Tensor) -> Tensor:
        shifted = tf.clip_by_value(shifted, dtype.min, dtype.max)
        return tf.where(is_finite, shifted, id_scores)

    counts = _Counts(
        class_ids, limit(id_scores + tolerance), limit(id_scores - tolerance)
    )
    return fold_scores(score, num_classes, block_size, counts)


class _Counts(NamedTuple):
    """Counts the classes above and tied with ids, but for these; see `search.Kept`."""

    class_ids: Tensor  # All are `[batch, P]`.
    highest: Tensor  # The scores up to which others tie.
    lowest: Tensor

    def start(self, ids: Tensor, scores: Tensor) -> TensorPair:
        # A class must not count as above or tied with itself. Its score here may be
        # rounded differently, by more than the tolerance where a GPU multiplies in
        # TF32.
        own_columns, in_block = within(self.class_ids - ids[0], tf.size(ids))
        own_scores = tf.gather(scores, own_columns, batch_dims=1)
        above, tied = count_one_by_one(scores, self.highest, self.lowest)
        own_above = in_block & (own_scores > self.highest)
        own_tied = in_block & (own_scores >= self.lowest) & ~own_above
        above -= tf.cast(own_above, tf.int32)
        tied -= tf.cast(own_tied, tf.int32)
        return above, tied

    def merge(self, kept: TensorPair, ids: Tensor, scores: Tensor) -> TensorPair:
        above, tied = self.start(ids, scores)
        return kept[0] + above, kept[1] + tied


def scores_as_in_blocks(
    score: Callable, num_classes: int, class_ids: Tensor, block_size: int | Tensor
) -> Tensor:
    """Scores of ids `[batch, P]`, rounded as in blocks; any number for an id < 0."""
    # Products of another shape may be rounded differently, by much where a GPU
    # multiplies in TF32.
    class_ids = tf.maximum(class_ids, 0)
    if isinstance(block_size, int) and num_classes <= block_size:
        return tf.gather(score(tf.range(num_classes)), class_ids, batch_dims=1)

    # The ids and the example of each, in blocks `[num_blocks, block_size]`.
    num_ids = tf.size(class_ids)
    num_blocks = -(-num_ids // block_size)
    num_missing = num_blocks * block_size - num_ids
    ids = tf.pad(tf.reshape(class_ids, [-1]), [[0, num_missing]])
    width = tf.maximum(tf.shape(class_ids)[1], 1)
    examples = tf.minimum(tf.range(tf.size(ids)), num_ids - 1) // width
    shape = [num_blocks, block_size]
    blocks = tf.reshape(ids, shape), tf.reshape(examples, shape)

    def score_block(block: Tensors) -> Tensor:
        # Each id is scored for all examples, of which only its own is kept.
        block_ids, block_examples = block
        own = tf.stack([block_examples, tf.range(block_size)], axis=1)
        return tf.gather_nd(score(block_ids), own)

    scores = tf.map_fn(
        score_block, blocks, fn_output_signature=tf.float32, parallel_iterations=1
    )
    scores = tf.reshape(scores, [-1])[:num_ids]
    return tf.reshape(scores, tf.shape(class_ids))


# The pairs of such a block fit in memory beside a model. Larger blocks are no faster.
_CANDIDATES_PER_BLOCK = 1024


def score_by_recomputed_blocks(
    score: Callable,
    candidates: Tensor,
    shared: Any,
    block_size: int = _CANDIDATES_PER_BLOCK,
) -> Tensor:
    """Scores candidates `[n, d]` in blocks, which the backward pass recomputes."""
    # `score` maps candidates `[m, d]`, the number of their block and `shared`, floating
    # tensors in any structure, to scores `[batch, m]`. It must read no variables and
    # draw only from fixed seeds. Up to twice `block_size` candidates are scored at
    # once. Recomputing takes a third of the time.
    n = candidates.shape[0]
    if n is None or n <= 2 * block_size:
        return score(candidates, 0, shared)
    num_blocks = -(-n // block_size)
    size = -(-n // num_blocks)

    def score_block(numbers: Tensor, rows: Tensor, *flat_shared: Tensor) -> Tensor:
        of_block = tf.nest.pack_sequence_as(shared, flat_shared)
        return tf.transpose(score(rows, numbers[0], of_block))

    arguments = Arguments(
        data=tf.range(n) // size,  # The number of each candidate's block.
        inputs=[candidates],
        shared=tf.nest.flatten(shared),
    )
    spec = tf.TensorSpec([size, None], candidates.dtype)
    scores = in_pieces(score_block, arguments, spec)
    return tf.ensure_shape(tf.transpose(scores), [None, n])


# If the class vectors have at least so many entries, a product for each example takes
# less time than one of all pairs: .94 of it in a graph and .80 under XLA at 64 x 1,000,
# d = 2,048, u = 256, where memory falls from 1.6 GB to .3 GB. For 1,000 classes with d
# = 128 the times are equal.
_MANY_ENTRIES = 100_000

# A shorter row has no direction, and its gradient would outweigh those of all others.
_SMALLEST = 1e-7


def latent_cross(encodings: Tensor, candidates: Tensor, kernel: Tensor) -> Tensor:
    r"""$\left(h \odot (1 + c_i)\right) W$ of encodings h and candidates.

    The shape is `[batch, n, u]`.
    """
    # Encodings are `[batch, d]`, candidates `[n, d]` or `[batch, n, d]`, the kernel
    # `[d, u]`. If candidates are many and W is narrow, each example has a kernel (1 +
    # c_i) diag(h) W, so that neither this nor the gradient forms the pairs
    # `[batch, n, d]`.
    n = candidates.shape[-2]
    units = kernel.shape[-1]
    is_narrow = n is not None and units is not None and units <= n
    # XLA cannot compile a loop over an empty batch.
    can_loop = is_narrow and candidates.shape.rank == 2 and encodings.shape[0] != 0
    if can_loop and n * (kernel.shape[0] or 0) >= _MANY_ENTRIES:
        # One example at a time: each product uses all cores, and memory holds only one.
        arguments = Arguments(inputs=[encodings], shared=[1 + candidates, kernel])
        spec = tf.TensorSpec([1, n, units], encodings.dtype)
        return in_pieces(_cross_example, arguments, spec)
    pairs = encodings[:, tf.newaxis] * (1 + candidates)
    return tf.tensordot(pairs, kernel, axes=1)


def _cross_example(_: Any, encoding: Tensor, factors: Tensor, kernel: Tensor) -> Tensor:
    """`latent_cross` of an encoding `[1, d]`, or `[0, d]` for an empty batch."""
    column = tf.reduce_sum(encoding, axis=0)[:, tf.newaxis]  # 0 for an empty batch.
    crossed = tf.matmul(factors, column * kernel)[tf.newaxis]
    return crossed[: tf.shape(encoding)[0]]


# With fewer classes for each example, sums of elementwise products replace `tf.einsum`.
# For 256 examples and 64 numbers they take .6 of its time with 2 or 3 classes, .8 with
# 8, and more memory.
_FEWEST_FOR_EINSUM = 4


def dot_products(
    encodings: Tensor, rows: Tensor, dtype: tf.DType = tf.float32
) -> Tensor:
    """Products `[batch, n]` of encodings `[batch, d]` with rows.

    The rows are `[n, d]` or `[batch, n, d]`. Encodings and rows are float32 numbers
    that the caller has `rounded` to the dtype.
    """
    if rows.shape.rank == 2:
        if dtype.size < 4 and in_xla():
            return _half_products(encodings, rows, dtype)
        return tf.matmul(encodings, rows, transpose_b=True)
    num_classes = rows.shape[1]
    if num_classes is not None and num_classes < _FEWEST_FOR_EINSUM:
        return tf.reduce_sum(rows * tf.expand_dims(encodings, 1), axis=-1)
    return tf.einsum("bmd,bd->bm", rows, encodings)


def _half_products(encodings: Tensor, rows: Tensor, dtype: tf.DType) -> Tensor:
    """`dot_products` of factors in half precision, with float32 sums and gradients."""
    # Tensor cores take half precision in half the time. Without XLA, TensorFlow has no
    # product whose sums are wider than its factors.
    multiply = functools.partial(tf.raw_ops.BatchMatMulV3, Tout=tf.float32)

    @tf.custom_gradient
    def products(encodings: Tensor, rows: Tensor) -> WithGradient:
        encodings = tf.cast(encodings, dtype)
        rows = tf.cast(rows, dtype)

        def gradient(upstream: Tensor) -> TensorPair:
            upstream = tf.cast(upstream, dtype)
            of_encodings = multiply(x=upstream, y=rows)
            of_rows = multiply(x=upstream, y=encodings, adj_x=True)
            return of_encodings, of_rows

        return multiply(x=encodings, y=rows, adj_y=True), gradient

    return products(encodings, rows)


def rounded(x: Tensor, dtype: tf.DType) -> Tensor:
    """Float32 numbers rounded to a dtype of half precision; the gradient is not."""
    if dtype.size >= 4:
        return x

    @tf.custom_gradient
    def round_(x: Tensor) -> WithGradient:
        return tf.cast(tf.cast(x, dtype), x.dtype), tf.identity

    return round_(x)


@tf.custom_gradient
def unit_rows(rows: Tensor) -> WithGradient:
    """Rows of length 1; 0, and without a gradient, for a row shorter than 1e-7."""
    divisors = _lengths(rows)
    unit = rows / divisors

    def gradient(upstream: Tensor) -> Tensor:
        radial = tf.reduce_sum(upstream * unit, axis=-1, keepdims=True)
        return (upstream - radial * unit) / divisors

    return unit, gradient


def cosines(encodings: Tensor, rows: Tensor, dtype: tf.DType = tf.float32) -> Tensor:
    """Cosines `[batch, n]` of encodings of length 1 with rows, as in `dot_products`."""
    # Dividing the products takes .7 of the time of a step with `unit_rows` (32 x 1,000,
    # d = 512). Equal rows tie. With TensorFlow's `rsqrt` or reciprocal they may not.
    lengths = _lengths(rows)
    is_shared = rows.shape.rank == 2
    divisors = tf.transpose(lengths) if is_shared else lengths[..., 0]

    @tf.custom_gradient
    def divided(products: Tensor, rows: Tensor) -> WithGradient:
        quotients = products / divisors

        def gradient(upstream: Tensor) -> TensorPair:
            radial = upstream * quotients
            if is_shared:
                radial = tf.reduce_sum(radial, axis=0)
            # Of two factors or divisors TensorFlow makes one, which underflows for long
            # rows.
            unit = rows / lengths
            return upstream / divisors, unit * (radial[..., tf.newaxis] / -lengths)

        return quotients, gradient

    return divided(dot_products(encodings, rows, dtype), rows)


@tf.custom_gradient
def _lengths(rows: Tensor) -> WithGradient:
    """Lengths `[..., 1]` of rows; infinite below 1e-7, so that quotients are 0."""
    # Squares above 1e38 overflow. To scale all rows would take a quarter of the time of
    # a head. Both branches give a row the same length, so that equal rows in different
    # blocks tie. A length above 3e38 is NaN, and from 1e34 on small gradients of
    # encodings underflow.
    found = tf.norm(rows, axis=-1, keepdims=True)
    are_finite = tf.math.is_finite(found)

    def with_long_rows() -> Tensor:
        long = tf.norm(rows * 2.0**-70, axis=-1, keepdims=True) * 2.0**70
        nan = tf.constant(np.nan, rows.dtype)
        long = tf.where(tf.math.is_finite(long), long, nan)
        return tf.where(are_finite, found, long)

    lengths = tf.cond(tf.reduce_all(are_finite), lambda: found, with_long_rows)
    infinity = tf.constant(np.inf, rows.dtype)
    lengths = tf.where(lengths < _SMALLEST, infinity, lengths)
    # Calls itself, since XLA cannot compile the gradient of `tf.cond` for an unknown
    # batch.
    return lengths, lambda upstream: upstream * (rows / _lengths(rows))
