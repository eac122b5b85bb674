"""Soft ranks of all items by sigmoids of all differences."""

import tensorflow as tf

from rank4class_tf._types import TensorLike

# Memory holds differences of so many pairs of a list at once, at least those of one item.
_PAIRS = 2**14


def all_sigmoid_ranks(
    scores: TensorLike, temperature: float, mask: tf.Tensor | None = None
) -> tf.Tensor:
    """The ranks of `layers.SigmoidSorter`, which has the formula.

    Time is O(d²). Memory is O(d), also for the gradient, since both go block by block.

    Args:
        scores: `[batch, d]`, finite, within +-1e30.
        temperature: > 0.
        mask: booleans `[batch, d]`, False for a masked item; None if no item is masked.

    Returns:
        `[batch, d]`, each in [1, d]; meaningless where masked.
    """
    scores = tf.convert_to_tensor(scores)

    @tf.custom_gradient
    def ranks(scores):
        def gradient(upstream):
            def pulls(scores_of_block, upstream_of_block):
                shares = sigmoids(scores_of_block)
                slopes = shares * (1 - shares)
                return tf.reduce_sum(slopes * (upstream_of_block - upstream[:, :, None]), axis=2)

            sums = _sum_over_blocks(pulls, [others, upstream], scores) / temperature
            return sums if mask is None else tf.where(mask, sums, tf.zeros_like(sums))

        def sigmoids(scores_of_block):
            return tf.sigmoid((scores_of_block - scores[:, :, tf.newaxis]) / temperature)

        # A score of -inf adds 0 to the ranks of the others and to their gradients.
        lowest = tf.constant(-float("inf"), scores.dtype)
        others = scores if mask is None else tf.where(mask, scores, lowest)
        sums = _sum_over_blocks(lambda s: tf.reduce_sum(sigmoids(s), axis=2), [others], scores)
        # The item itself adds sigmoid(0) = 1/2.
        return 0.5 + sums, gradient

    return ranks(scores)


def _sum_over_blocks(function, values, scores):
    """The sum of `function` of blocks `[batch, 1, block]` of the values, `[batch, d]`.

    Scores of -inf, and 0 for other values, fill up the last block.
    """
    size = scores.shape[1] or tf.shape(scores)[1]
    if isinstance(size, int) and size**2 <= _PAIRS:
        return function(*(x[:, tf.newaxis] for x in values))
    block = _PAIRS // (size + 1) + 1
    count = -(-size // block)
    fill = [-float("inf"), 0]
    blocks = []
    for x, constant in zip(values, fill, strict=False):
        x = tf.pad(x, [[0, 0], [0, count * block - size]], constant_values=constant)
        x = tf.reshape(x, [-1, count, 1, block])
        blocks.append(tf.transpose(x, [1, 0, 2, 3]))

    def step(index, total):
        # A batch of one list loses its static size.
        of_block = tf.ensure_shape(function(*(x[index] for x in blocks)), scores.shape)
        return index + 1, total + of_block

    _, total = tf.while_loop(
        lambda index, _: index < count,
        step,
        (tf.constant(0), tf.zeros_like(scores)),
        maximum_iterations=count,
        parallel_iterations=1,  # More blocks at once would take their memory at once.
    )
    return total
