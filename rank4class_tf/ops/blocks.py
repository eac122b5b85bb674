"""What is computed for all classes block by block."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf._tf import raising
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.ranks import count_one_by_one

# For a batch of 256, the scores of such a block take 16 MB.
_BLOCK = 16_384

# Later blocks have few scores above the k-th best so far. The maxima of groups of so many scores
# find them, which takes a third of the time at a million classes, k = 100 and a batch of 256.
_GROUP = 64


def top_k_by_blocks(
    score: Callable, num_classes: int, k: int | tf.Tensor, block_size: int = _BLOCK
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the k classes with the highest scores, block by block.

    Args:
        score: a function of class ids `[m]` that returns their scores `[batch, m]`.
        num_classes: K, an int.
        k: in [1, K], an int or a scalar tensor.
        block_size: classes per block, a positive int; a block has at least k, and a multiple of 64.
            Memory is O(batch block_size).

    Returns:
        Scores and class ids, both `[batch, k]`, best first; of equal scores the lower id first.
        Equal classes come in any order if their scores are products, which are rounded.

    Example:
        >>> scores = tf.constant([[0.1, 0.3, 0.2]])
        >>> values, ids = top_k_by_blocks(lambda i: tf.gather(scores, i, axis=1), 3, k=2)
        >>> ids.numpy()
        array([[1, 2]], dtype=int32)
    """
    # Python numbers where possible, since XLA needs static shapes.
    largest = max if isinstance(k, int) else tf.maximum
    size = -(-largest(block_size, k) // _GROUP) * _GROUP

    def join(best, ids, new, places):
        values = tf.concat([best[0], new], axis=1)
        ids_of_values = tf.concat([best[1], tf.gather(ids, places)], axis=1)
        # Sorting all takes half the time of finding the k highest of slightly more than k.
        values, index = tf.math.top_k(values, tf.shape(values)[1])
        values, index = (tf.ensure_shape(x[:, :k], best[0].shape) for x in (values, index))
        return values, tf.gather(ids_of_values, index, batch_dims=1)

    def merge(best, ids, scores):
        def from_all():
            return join(best, ids, *tf.math.top_k(scores, k))

        if raising.in_xla():  # XLA needs static shapes.
            return from_all()
        groups = tf.reshape(scores, [-1, size // _GROUP, _GROUP])
        least = best[0][:, -1:]
        has_new = tf.reduce_max(groups, axis=2) > least
        return tf.cond(
            tf.math.count_nonzero(has_new) <= tf.size(has_new, tf.int64) // 2,
            lambda: join(best, ids, *_above(groups, least, has_new)),
            from_all,
        )

    def start(ids, scores):
        values, index = tf.math.top_k(scores, k)
        return values, tf.gather(ids, index)

    return _over_blocks(score, num_classes, size, start, merge)


def _above(groups, least, has_new):
    """The scores above the least and their columns, `[batch, most of a row]`.

    Args:
        groups: `[batch, groups, size of a group]`.
        least: `[batch, 1]`.
        has_new: `[batch, groups]`, False for a group without such a score.
    """
    of_group = tf.where(has_new)
    scores = tf.gather_nd(groups, of_group)
    of_score = tf.where(scores > tf.gather(least, of_group[:, 0]))
    row, group = tf.unstack(tf.gather(of_group, of_score[:, 0]), axis=1)

    def by_row(values, padding):
        nrows = tf.shape(groups, tf.int64)[0]
        ragged = tf.RaggedTensor.from_value_rowids(values, row, nrows, validate=False)
        return ragged.to_tensor(padding)

    columns = tf.cast(group * groups.shape[2] + of_score[:, 1], tf.int32)
    padding = tf.constant(-float("inf"), scores.dtype)
    return by_row(tf.gather_nd(scores, of_score), padding), by_row(columns, 0)


def count_above_and_tied_by_blocks(
    score: Callable,
    num_classes: int,
    class_ids: TensorLike,
    scores_of_ids: TensorLike,
    block_size: int = _BLOCK,
    tolerance: TensorLike = 0.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Counts the classes above and the classes tied with given ones, block by block.

    Args:
        score: a function of class ids `[m]` that returns their scores `[batch, m]`.
        num_classes: K, an int.
        class_ids: integers `[batch, P]`, padded with -1.
        scores_of_ids: `[batch, P]`, their scores.
        block_size: classes per block, a positive int. Memory is O(batch block_size).
        tolerance: how far apart two scores may be and count as the same, `[batch, P]`.

    Returns:
        Two int32 tensors `[batch, P]`: how many classes score higher, and how many the same, the
        class itself included. Both are 0 for padding and for a NaN score.

    Example:
        >>> scores = tf.constant([[0.1, 0.3, 0.1]])
        >>> above, tied = count_above_and_tied_by_blocks(
        ...     lambda i: tf.gather(scores, i, axis=1), 3, [[0]], [[0.1]]
        ... )
        >>> above.numpy(), tied.numpy()
        (array([[1]], dtype=int32), array([[2]], dtype=int32))
    """
    class_ids = tf.cast(class_ids, tf.int32)
    own = tf.convert_to_tensor(scores_of_ids)
    ranked = tf.cast((class_ids >= 0) & ~tf.math.is_nan(own), tf.int32)
    above, others = count_others_by_blocks(
        score, num_classes, class_ids, own, block_size=block_size, tolerance=tolerance
    )
    return above * ranked, (others + 1) * ranked


def count_others_by_blocks(
    score: Callable,
    num_classes: int,
    class_ids: tf.Tensor,
    own: tf.Tensor,
    block_size: int = _BLOCK,
    tolerance: TensorLike = 0.0,
) -> list[tf.Tensor]:
    """As `count_above_and_tied_by_blocks`, but a class itself is not counted, whatever its id.

    An id outside of [0, K) is that of a class that is not among these.
    """
    # No score within the tolerance is lost where these sums are rounded, since rounding keeps the
    # order of numbers. An infinite score ties only with its equals, and no finite score ties with
    # one: that of a class that is left out is -inf.
    highest, lowest = (
        tf.where(
            tf.math.is_finite(own),
            tf.clip_by_value(limit, own.dtype.min, own.dtype.max),
            own,
        )
        for limit in (own + tolerance, own - tolerance)
    )

    def count(ids, scores):
        # In its own block we don't compare a class with itself: its score may be rounded otherwise,
        # and by more than the tolerance where a GPU multiplies in TF32.
        position = class_ids - ids[0]
        here = (position >= 0) & (position < tf.size(ids))
        position = tf.where(here, position, 0)
        again = tf.gather(scores, position, batch_dims=1)

        # One label at a time, so that no [batch, P, block] tensor appears.
        above, tied = count_one_by_one(scores, highest, lowest)
        is_above = here & (again > highest)
        is_tied = here & (again >= lowest) & ~is_above
        return above - tf.cast(is_above, tf.int32), tied - tf.cast(is_tied, tf.int32)

    def merge(counts, ids, scores):
        return [a + b for a, b in zip(counts, count(ids, scores), strict=True)]

    return _over_blocks(score, num_classes, block_size, count, merge)


def scores_as_in_blocks(
    score: Callable, num_classes: int, class_ids: tf.Tensor, block_size: int = _BLOCK
) -> tf.Tensor:
    """Scores of given classes, rounded as the blocks round them.

    Products of other shapes may be rounded by more, as where a GPU multiplies in TF32.

    Args:
        score: a function of class ids `[m]`, in any order, that returns their scores `[batch, m]`.
        num_classes: K, an int.
        class_ids: integers `[batch, P]`, padded with -1.
        block_size: classes per block, a positive int. Memory is O(batch block_size).

    Returns:
        `[batch, P]`, any number where padded.
    """
    class_ids = tf.maximum(class_ids, 0)
    if num_classes <= block_size:
        return tf.gather(score(tf.range(num_classes)), class_ids, batch_dims=1)
    count, width = tf.size(class_ids), tf.maximum(tf.shape(class_ids)[1], 1)
    num_blocks = -(-count // block_size)
    ids = tf.pad(tf.reshape(class_ids, [-1]), [[0, num_blocks * block_size - count]])
    rows = tf.minimum(tf.range(tf.size(ids)), count - 1) // width

    def own(block):
        scores, places = score(block[0]), tf.range(block_size)
        return tf.gather_nd(scores, tf.stack([block[1], places], axis=1))

    blocks = [tf.reshape(x, [num_blocks, block_size]) for x in (ids, rows)]
    scores = tf.map_fn(own, blocks, fn_output_signature=tf.float32, parallel_iterations=1)
    return tf.reshape(tf.reshape(scores, [-1])[:count], tf.shape(class_ids))


def _over_blocks(score, num_classes, block_size, start, merge):
    """Folds `merge(state, ids, scores)` over all blocks, after `start(ids, scores)`."""
    smallest = min if isinstance(block_size, int) else tf.minimum
    size = smallest(block_size, num_classes)
    state = [tf.convert_to_tensor(x) for x in start(tf.range(size), score(tf.range(size)))]
    if isinstance(size, int) and size == num_classes:
        return state

    def step(block, *state):
        # The last block is as wide as the others and overlaps the one before; we mask that part.
        first = tf.minimum(block * size, num_classes - size)
        ids = first + tf.range(size)
        scores = score(ids)
        scores = tf.cond(
            first < block * size,
            lambda: tf.where(
                (ids < block * size)[tf.newaxis], tf.constant(-float("inf"), scores.dtype), scores
            ),
            lambda: scores,
        )
        return block + 1, *merge(state, ids, scores)

    _, *state = tf.while_loop(
        lambda block, *_: block * size < num_classes,
        step,
        (tf.constant(1), *state),
        parallel_iterations=1,  # More blocks at once would take their memory at once.
    )
    return state


# The pairs of a block of so many classes fit in memory beside a model. Larger blocks are no faster.
_RECOMPUTED = 1024


def score_by_recomputed_blocks(
    score: Callable, candidates: tf.Tensor, shared: Any, block_size: int = _RECOMPUTED
) -> tf.Tensor:
    """Scores candidates in blocks, so that memory holds intermediate results of only one block.

    The backward pass computes the blocks again, which adds a third to the time. Up to twice
    `block_size` candidates are scored at once, without recomputing.

    Args:
        score: a function of candidates `[m, d]`, the number of their block and `shared` that
            returns scores `[batch, m]`. It must read no variables and draw only from fixed seeds,
            so that it returns the same again.
        candidates: `[n, d]`.
        shared: floating tensors in any structure that `score` depends on: encodings and weights.
        block_size: the most candidates per block, a positive int.

    Returns:
        `[batch, n]`.

    Example:
        >>> score = lambda candidates, block, h: tf.matmul(h, candidates, transpose_b=True)
        >>> score_by_recomputed_blocks(score, tf.eye(3), tf.ones([1, 3]), block_size=1).numpy()
        array([[1., 1., 1.]], dtype=float32)
    """
    n = candidates.shape[0]
    if n is None or n <= 2 * block_size:
        return score(candidates, 0, shared)
    num_blocks = -(-n // block_size)
    size = -(-n // num_blocks)

    @tf.custom_gradient
    def scores_of(candidates, *shared_list):
        padded = tf.pad(candidates, [[0, num_blocks * size - n], [0, 0]])
        blocks = tf.reshape(padded, [num_blocks, size, -1])

        def of_block(rows, block, tensors):
            return score(rows, block, tf.nest.pack_sequence_as(shared, tensors))

        def gradient(upstream):
            columns = tf.pad(upstream, [[0, 0], [0, num_blocks * size - n]])
            columns = tf.transpose(tf.reshape(columns, [-1, num_blocks, size]), [1, 0, 2])

            def add(block, of_blocks, *sums):
                rows = blocks[block]
                with tf.GradientTape() as tape:
                    tape.watch([rows, *shared_list])
                    scores = of_block(rows, block, shared_list)
                of_rows, *of_shared = tape.gradient(
                    scores,
                    [rows, *shared_list],
                    output_gradients=columns[block],
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
                sums = [a + b for a, b in zip(sums, of_shared, strict=True)]  # type: ignore[assignment]
                return block + 1, of_blocks.write(block, of_rows), *sums

            of_blocks = tf.TensorArray(candidates.dtype, num_blocks, element_shape=blocks.shape[1:])
            _, of_blocks, *sums = tf.while_loop(
                lambda block, *_: block < num_blocks,
                add,
                (tf.constant(0), of_blocks, *map(tf.zeros_like, shared_list)),
                parallel_iterations=1,
            )
            of_candidates = tf.reshape(of_blocks.stack(), tf.shape(padded))[:n]
            return [of_candidates, *sums]

        scores = tf.map_fn(
            lambda block: of_block(blocks[block], block, shared_list),
            tf.range(num_blocks),
            fn_output_signature=tf.TensorSpec([None, size], candidates.dtype),
            parallel_iterations=1,
        )
        scores = tf.reshape(tf.transpose(scores, [1, 0, 2]), [-1, num_blocks * size])
        return scores[:, :n], gradient

    return scores_of(candidates, *tf.nest.flatten(shared))


# If all classes together have at least so many numbers, a product for each example takes less time
# than one of all pairs: .94 of it in a graph and .80 under XLA at 64 x 1,000, d = 2,048, u = 256,
# where memory falls from 1.6 GB to .3 GB. For 1,000 classes of 128 numbers the times are equal.
_MANY_NUMBERS = 100_000

# As in `tf.math.l2_normalize`: shorter rows keep a length below 1.
_LEAST_NORM = 1e-6


def latent_cross(encodings: tf.Tensor, candidates: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    r"""Multiplies each encoding, crossed with each candidate, by a kernel.

    $$z_i = \left(h \odot (1 + c_i)\right) W$$

    If candidates are many and W is narrow, each example has a kernel of its own,
    $(1 + c_i)\,\mathrm{diag}(h)\,W$, so that neither this nor the gradient forms the pairs
    `[batch, n, d]`.

    Source: Beutel et al. 2018, "Latent Cross"; Rank4Class, section 4.2.

    Args:
        encodings: h, `[batch, d]`.
        candidates: the c_i, `[n, d]` shared by all examples, or `[batch, n, d]`.
        kernel: W, `[d, u]`.

    Returns:
        `[batch, n, u]`.

    Example:
        >>> latent_cross(tf.constant([[2.0, 1.0]]), tf.constant([[0.5, 1.0]]), tf.eye(2)).numpy()
        array([[[3., 2.]]], dtype=float32)
    """
    n, units = candidates.shape[-2], kernel.shape[-1]
    narrow = n is not None and units is not None and units <= n
    # XLA cannot compile a loop over an empty batch.
    loops = narrow and candidates.shape.rank == 2 and encodings.shape[0] != 0
    if loops and n * (kernel.shape[0] or 0) >= _MANY_NUMBERS:
        return _by_example(encodings, candidates, kernel)
    pairs = encodings[:, tf.newaxis] * (1 + candidates)
    return tf.tensordot(pairs, kernel, axes=1)


@tf.custom_gradient
def _by_example(encodings, candidates, kernel):
    factors = 1 + candidates

    def of_example(encoding):
        return tf.matmul(factors, encoding[:, tf.newaxis] * kernel)

    def gradient(upstream):
        def add(example, of_encodings, of_candidates, of_kernel):
            encoding, of_product = encodings[example][:, tf.newaxis], upstream[example]
            of_own_kernel = tf.matmul(factors, of_product, transpose_a=True)
            of_encoding = tf.reduce_sum(kernel * of_own_kernel, axis=1)
            return (
                example + 1,
                of_encodings.write(example, of_encoding),
                of_candidates + tf.matmul(of_product, encoding * kernel, transpose_b=True),
                of_kernel + encoding * of_own_kernel,
            )

        batch = tf.shape(encodings)[0]
        rows = tf.TensorArray(encodings.dtype, batch, element_shape=encodings.shape[1:])
        start = (tf.constant(0), rows, tf.zeros_like(candidates), tf.zeros_like(kernel))
        _, rows, of_candidates, of_kernel = tf.while_loop(
            lambda example, *_: example < batch, add, start, parallel_iterations=1
        )
        return tf.reshape(rows.stack(), tf.shape(encodings)), of_candidates, of_kernel

    # One example after the other, since each uses all cores, and memory then holds only one.
    products = tf.map_fn(
        of_example,
        encodings,
        fn_output_signature=tf.TensorSpec([candidates.shape[0], kernel.shape[1]], encodings.dtype),
        parallel_iterations=1,
    )
    return products, gradient


@tf.custom_gradient
def unit_rows(rows: tf.Tensor) -> tf.Tensor:
    """As `tf.math.l2_normalize` of each row; rows near zero have no gradient.

    The gradient takes a third of the operations.

    Args:
        rows: `[..., d]`.

    Example:
        >>> unit_rows(tf.constant([[3.0, 4.0], [0.0, 0.0]])).numpy()
        array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """
    lengths = norms(rows)
    unit = rows / lengths

    def gradient(upstream):
        along = tf.reduce_sum(upstream * unit, axis=-1, keepdims=True)
        # A row near zero has no direction. Divided by the least norm, its gradient would outweigh
        # all others: one example without features would turn all encodings to one side.
        factors = tf.where(lengths > _LEAST_NORM, 1 / lengths, 0.0)
        return (upstream - along * unit) * factors

    return unit, gradient


def norms(rows: tf.Tensor) -> tf.Tensor:
    """The length of each row of `[..., d]`, at least a millionth: `[..., 1]`.

    Dividing by it gives equal results for equal rows, wherever they stand. TensorFlow's `rsqrt` and
    reciprocal do not.
    """
    squares = tf.reduce_sum(tf.square(rows), axis=-1, keepdims=True)
    return tf.maximum(tf.sqrt(squares), _LEAST_NORM)
