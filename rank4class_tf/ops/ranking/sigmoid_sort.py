"""Soft ranks of all items by sigmoids of all differences."""

import tensorflow as tf

from rank4class_tf._tf import raising
from rank4class_tf._types import TensorLike

# A list of so many pairs takes them all at once.
_SHORT = 2**14

# Otherwise memory holds so many differences at once, at least those of an item of each list. They
# stay in the processor's cache: half the time for 512 lists of 512 items.
_ENTRIES = 2**16


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
        # A score of -inf adds 0 to the ranks of the others and to their gradients.
        lowest = tf.constant(-float("inf"), scores.dtype)
        others = scores if mask is None else tf.where(mask, scores, lowest)

        def sigmoids(others, own):
            return tf.sigmoid((others - own) / temperature)

        def gradient(upstream):
            def pulls(others, own):
                shares = sigmoids(others[0], own[0])
                return shares * (1 - shares) * (others[1] - own[1])

            sums = _sum_over_items(pulls, [others, upstream], [scores, upstream]) / temperature
            return sums if mask is None else tf.where(mask, sums, tf.zeros_like(sums))

        # The item itself adds sigmoid(0) = 1/2.
        sums = _sum_over_items(lambda x, y: sigmoids(x[0], y[0]), [others], [scores])
        return 0.5 + sums, gradient

    return ranks(scores)


def _sum_over_items(function, others, own):
    """`sum_j function(others_j, own_i)` for each item i, `[batch, d]`, block by block of items j.

    Args:
        function: of entries; 0 where the first of `others` is -inf.
        others: of each item, `[batch, d]` each.
        own: `[batch, d]` each.
    """
    batch, size = (a or b for a, b in zip(own[0].shape, tf.unstack(tf.shape(own[0])), strict=True))
    if isinstance(size, int) and size**2 <= _SHORT:
        pairs = [x[:, tf.newaxis] for x in others], [x[:, :, tf.newaxis] for x in own]
        return tf.reduce_sum(function(*pairs), axis=2)
    if raising.in_xla() and not isinstance(batch, int):
        batch = 8  # It needs a static block.
    block = _ENTRIES // (batch * size + 1) + 1
    count = -(-size // block)
    blocks = []
    for x, constant in zip(others, [-float("inf"), 0], strict=False):
        x = tf.pad(x, [[0, 0], [0, count * block - size]], constant_values=constant)
        blocks.append(tf.reshape(tf.transpose(x), [count, block, -1, 1]))

    def step(index, total):
        added = tf.reduce_sum(function([x[index] for x in blocks], own), axis=0)
        # A batch of one list loses its static size.
        return index + 1, total + tf.ensure_shape(added, total.shape)

    _, total = tf.while_loop(
        lambda index, _: index < count,
        step,
        (tf.constant(0), tf.zeros_like(own[0])),
        maximum_iterations=count,
        parallel_iterations=1,  # More blocks at once would take their memory at once.
    )
    return total
