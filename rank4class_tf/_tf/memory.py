"""Memory that the tensors of a batch share with arrays of the caller."""

from typing import Any

import tensorflow as tf

from rank4class_tf._tf.raising import in_xla


def owned(x: Any) -> Any:
    """A copy of a tensor that a caller hands to a graph; anything else as it is."""
    # An operation may write its result to the memory of an input that no other
    # operation reads. A batch from a generator has the memory of its NumPy array, so
    # that under a strategy a step changed the caller's labels and weights. In eager
    # mode the caller still holds the tensor, and XLA writes to no argument.
    is_tensor = isinstance(x, tf.Tensor) and x.shape.rank != 0
    if not is_tensor or tf.executing_eagerly() or in_xla():
        return x
    return tf.concat([x, x[:0]], axis=0)
