"""The largest scores of long lists."""

import math

import tensorflow as tf

from rank4class_tf._tf.gather import gather, indices
from rank4class_tf._types import TensorLike

# Below this many items per item sought, sorting them all costs less than finding the blocks.
_MIN_ITEMS_PER_PLACE = 32


def top_k(scores: tf.Tensor, k: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
    """The k largest scores in falling order, and where they stand.

    Equal to `tf.math.top_k` but for the order of equal scores. The k largest of all lie in the k
    blocks whose maxima are largest, so that only block maxima and those blocks need sorting:
    XLA's top_k on a CPU sorts every list in full.

    Args:
        scores: `[batch, n]`, n >= k.
        k: positive integer, or a scalar tensor where only running tells, for which all is sorted.

    Returns:
        Two tensors `[batch, k]`, the values and their columns, int32.
    """
    n = scores.shape[1]
    if n is None or not isinstance(k, int) or n < _MIN_ITEMS_PER_PLACE * k:
        values, columns = tf.math.top_k(scores, k)
        return values, columns
    size = math.isqrt(n // k)
    size = next((s for s in range(size, size // 2, -1) if n % s == 0), size)
    blocks = -(-n // size)
    if blocks * size > n:
        scores = tf.pad(scores, [[0, 0], [0, blocks * size - n]], constant_values=-float("inf"))
    blocked = tf.reshape(scores, [-1, blocks, size])
    _, best_blocks = tf.math.top_k(tf.reduce_max(blocked, axis=-1), k)
    candidates = tf.reshape(gather(blocked, best_blocks), [-1, k * size])
    values, positions = tf.math.top_k(candidates, k)
    columns = tf.gather(best_blocks, positions // size, batch_dims=1) * size + positions % size
    # A list of fewer than k items may fill up with padding; it must not point outside.
    return values, tf.minimum(columns, n - 1)


def add_columns(x: tf.Tensor, columns: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """`x` with `values[b, j]` added at `[b, columns[b, j]]`; columns may repeat."""
    return tf.tensor_scatter_nd_add(x, indices(columns), values)
