"""Whether what a loss gets as scores are probabilities, as far as that can be told cheaply."""

from typing import Any

import tensorflow as tf


def function_behind(scores: Any) -> str | None:
    """Returns `"softmax"` or `"sigmoid"` if scores come from one, and None if nothing shows it.

    Args:
        scores: `[batch, n]`. A graph shows the operation, at no cost when it runs. In eager mode
            rows of positive numbers that sum to 1 tell of a softmax, which costs a pass.
    """
    if tf.is_symbolic_tensor(scores):
        operation = scores.op
        while operation.type in ("Identity", "Cast", "Reshape"):
            operation = operation.inputs[0].op
        name = operation.type.lower()
        return name if name in ("softmax", "sigmoid") else None
    if not tf.executing_eagerly():
        return None  # A constant of a graph.
    scores = tf.cast(tf.convert_to_tensor(scores), tf.float32)
    if scores.shape.rank != 2 or not tf.size(scores) or scores.shape[1] == 1:
        return None
    # Half precision rounds each of them.
    sums_to_1 = tf.abs(tf.reduce_sum(scores, axis=-1) - 1) < 1e-2
    return "softmax" if tf.reduce_all(sums_to_1) and tf.reduce_all(scores > 0) else None
