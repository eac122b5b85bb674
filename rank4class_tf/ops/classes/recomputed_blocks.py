"""Scores of many classes, block by block, computed again in the backward pass."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# The pairs of a block of so many classes fit in memory beside a model. Larger blocks are no faster.
_BLOCK = 1024


def score_by_recomputed_blocks(
    score: Callable, candidates: tf.Tensor, shared: Any, block_size: int = _BLOCK
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
