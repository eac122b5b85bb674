"""Errors of values, in eager mode and from graphs."""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.ops import control_flow_util


def check(
    bad: tf.Tensor | Callable, values: tf.Tensor, rule: str, bad_rows: tf.Tensor | None = None
) -> tf.Tensor:
    """Raises if a row is bad, wherever something can raise; what XLA compiles cannot.

    Args:
        bad: `[batch, r]` booleans, True where a value breaks the rule; or a function that makes
            them of rows of values, which is asked about bad rows alone.
        values: `[batch, r]`.
        rule: what the values must be, with the name of the argument.
        bad_rows: `[batch]` booleans, True for a row to raise for, some value of which is bad; None
            means each row with a bad value.

    Returns:
        `[batch]` booleans, True for a bad row.

    Raises:
        ValueError: in eager mode. In a graph it is TensorFlow's `InvalidArgumentError`.
    """
    if bad_rows is None:
        bad_rows = tf.reduce_any(bad, axis=-1)
    eager = tf.executing_eagerly()
    if not tf.reduce_any(bad_rows) if eager else in_xla():
        return bad_rows
    rows = tf.where(bad_rows)  # None, as a rule: the rest is free then.
    received = tf.gather_nd(values, rows)
    of_rows = bad(received) if callable(bad) else tf.gather_nd(bad, rows)
    received = tf.gather_nd(received, tf.where(of_rows))
    if eager:
        raise ValueError(f"{rule}. Received: {received[0].numpy()!r}.")
    raised = tf.raw_ops.Assert(
        condition=tf.size(rows) == 0, data=[f"{rule}. Received:", received], summarize=5
    )
    with tf.control_dependencies([raised]):  # So that this error comes before those it causes.
        return tf.identity(bad_rows)


def in_xla():
    """Whether XLA will compile the graph, for a TPU as well: it would drop the assertion.

    No public function of TensorFlow tells.
    """
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def compared_in_rows(
    x: tf.Tensor, other: tf.Tensor, rule: str
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Raises for what broadcasting would hide; what XLA compiles cannot.

    Args:
        x: `[batch, ...]`.
        other: `[batch, ...]`.
        rule: a sentence that names the arguments.

    Returns:
        `x`, and under XLA, where only running tells, whether the numbers of rows differ, a scalar
        boolean; None elsewhere.

    Raises:
        ValueError: if the numbers are known and differ. In a graph whose sizes are not known it is
            TensorFlow's `InvalidArgumentError`.
    """
    if None not in (x.shape[0], other.shape[0]):
        if x.shape[0] != other.shape[0]:
            raise ValueError(f"{rule} Received: {x.shape[0]} and {other.shape[0]} rows.")
        return x, None
    sizes = tf.shape(x)[0], tf.shape(other)[0]
    if in_xla():
        return x, sizes[0] != sizes[1]
    equal = tf.debugging.assert_equal(*sizes, f"{rule} Received: numbers of rows")
    with tf.control_dependencies([equal]):  # So that this error comes before those it causes.
        return tf.identity(x), None


def as_many_rows(x: tf.Tensor, other: tf.Tensor, rule: str) -> tf.Tensor:
    """`x`, floating, as of `compared_in_rows`; NaN where the numbers of rows differ under XLA."""
    x, differ = compared_in_rows(x, other, rule)
    return x if differ is None else tf.where(differ, tf.constant(float("nan"), x.dtype), x)
