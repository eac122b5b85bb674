"""Sizes of tensors, as Python numbers where a graph knows them.

They save eager mode operations, and XLA needs them for static shapes.
"""

import numpy as np
import tensorflow as tf

from rank4class_tf._types import Size, Tensor


def num_rows(x: Tensor) -> Size:
    """The size of the first axis, also of ragged tensors; int32 if a tensor."""
    size = x.shape[0]
    if size is not None:
        return size
    if isinstance(x, tf.RaggedTensor):
        return tf.cast(x.nrows(), tf.int32)
    return tf.unstack(tf.shape(x))[0]


def width_of(x: Tensor) -> Size:
    """The size of the second axis; a tensor if 0, by which Python cannot divide."""
    return x.shape[1] or tf.shape(x)[1]


def smaller(a: Size, b: Size) -> Size:
    """The smaller of two sizes."""
    return min(a, b) if _are_known(a, b) else tf.minimum(a, b)


def larger(a: Size, b: Size) -> Size:
    """The larger of two sizes."""
    return max(a, b) if _are_known(a, b) else tf.maximum(a, b)


def _are_known(*sizes: Size) -> bool:
    return all(isinstance(size, int | np.integer) for size in sizes)
