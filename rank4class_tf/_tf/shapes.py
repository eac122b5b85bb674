"""Sizes of tensors, as Python numbers where a graph knows them.

They save eager mode operations, and XLA needs them for static shapes.
"""

import numpy as np
import tensorflow as tf

from rank4class_tf._types import Size, Tensor


def num_rows(x: Tensor) -> Size:
    """The size of the first axis."""
    size = x.shape[0]
    return tf.unstack(tf.shape(x))[0] if size is None else size


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
