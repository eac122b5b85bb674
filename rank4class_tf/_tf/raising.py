"""Errors of values, in eager mode and from graphs."""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.ops import control_flow_util


def check(
    bad: tf.Tensor, values: tf.Tensor, rule: str, of_row: Callable = tf.reduce_any
) -> tf.Tensor:
    """Raises if a row is bad, wherever something can raise; what XLA compiles cannot.

    Args:
        bad: `[batch, r]` booleans, True where a value breaks the rule.
        values: `[batch, r]`.
        rule: what the values must be, with the name of the argument.
        of_row: makes a row's verdict of those of its values.

    Returns:
        `[batch]` booleans, True for a bad row.

    Raises:
        ValueError: in eager mode. In a graph it is TensorFlow's `InvalidArgumentError`.
    """
    bad_rows = of_row(bad, axis=-1)
    if tf.executing_eagerly():
        if bool(tf.reduce_any(bad_rows)):
            row = tf.argmax(bad_rows)
            raise ValueError(f"{rule}. Received: {values[row][bad[row]][0].numpy()!r}.")
        return bad_rows
    if _in_xla():
        return bad_rows
    rows = tf.where(bad_rows)  # None, as a rule: the rest is free then.
    received = tf.gather_nd(tf.gather_nd(values, rows), tf.where(tf.gather_nd(bad, rows)))
    raised = tf.raw_ops.Assert(
        condition=tf.size(rows) == 0, data=[f"{rule}. Received:", received], summarize=5
    )
    with tf.control_dependencies([raised]):  # So that this error comes before those it causes.
        return tf.identity(bad_rows)


def _in_xla():
    """Whether XLA will compile the graph, for a TPU as well: it would drop the assertion.

    No public function of TensorFlow tells.
    """
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
