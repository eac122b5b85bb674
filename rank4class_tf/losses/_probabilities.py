"""Whether what a loss gets as scores are probabilities, as far as that can be told cheaply."""

from typing import Any

import tensorflow as tf


def come_from_a_softmax(scores: Any) -> bool:
    """Whether scores are the output of a softmax.

    Args:
        scores: `[batch, n]`. A graph shows the operation, at no cost when it runs. In eager mode
            rows of positive numbers that sum to 1 tell, which costs a pass.
    """
    if tf.is_symbolic_tensor(scores):
        operation = scores.op
        while operation.type in ("Identity", "Cast", "Reshape"):
            operation = operation.inputs[0].op
        return operation.type == "Softmax"
    scores = tf.cast(tf.convert_to_tensor(scores), tf.float32)
    if scores.shape.rank != 2 or not tf.size(scores) or scores.shape[1] == 1:
        return False
    # Half precision rounds each of them.
    sums_to_1 = tf.abs(tf.reduce_sum(scores, axis=-1) - 1) < 1e-2
    return bool(tf.reduce_all(sums_to_1) & tf.reduce_all(scores > 0))
