"""Errors for bad values and sizes, in eager mode and from graphs.

A graph that XLA compiles cannot raise for values: `check` then returns which rows are
bad, and the caller makes them NaN. It can raise for sizes, which `same_sizes` compares.
"""

import re
from collections.abc import Callable

import tensorflow as tf

from rank4class_tf._tf.private import private
from rank4class_tf._types import Tensor


def check(bad: Tensor, values: Tensor, rule: str) -> Tensor:
    """Raises for bad values, except under XLA; returns which rows are bad, `[batch]`.

    It raises `ValueError`, in a graph TensorFlow's `InvalidArgumentError`. The rule
    says what the values `[batch, r]` must be, with the name of the argument; `bad` is
    True where they break it, which makes their row bad.
    """
    bad_rows = tf.reduce_any(bad, axis=-1)
    return _raise_for(bad_rows, lambda: tf.gather_nd(values, tf.where(bad)), rule)


def check_rows(
    bad_rows: Tensor, is_bad: Callable[[Tensor], Tensor], values: Tensor, rule: str
) -> Tensor:
    """`check` of rows that are known to be bad; `is_bad` looks at these values only."""

    def received() -> Tensor:
        of_rows = tf.gather_nd(values, tf.where(bad_rows))
        return tf.gather_nd(of_rows, tf.where(is_bad(of_rows)))

    return _raise_for(bad_rows, received, rule)


def _raise_for(bad_rows: Tensor, received: Callable[[], Tensor], rule: str) -> Tensor:
    if tf.executing_eagerly():
        if tf.reduce_any(bad_rows):
            raise ValueError(f"{rule}. Received: {received()[0].numpy()!r}.")
        return bad_rows
    if in_xla():
        return bad_rows

    assertion = tf.raw_ops.Assert(
        condition=~tf.reduce_any(bad_rows),
        data=[f"{rule}. Received:", received()],
        summarize=5,
    )
    # This error comes before those that the bad values cause.
    with tf.control_dependencies([assertion]):
        return tf.identity(bad_rows)


def checked(x: Tensor, bad: Tensor, values: Tensor, rule: str) -> Tensor:
    """Floating `x` `[batch, ...]`; bad rows of a `check` are NaN if it cannot raise."""
    return replaced(x, check(bad, values, rule), float("nan"))


def replaced(x: Tensor, bad_rows: Tensor, filler: float) -> Tensor:
    """`x` `[batch, ...]`; bad rows of a `check` hold a filler if it cannot raise."""
    if tf.executing_eagerly():
        return x
    if x.shape.rank > 1:
        bad_rows = tf.reshape(bad_rows, [-1] + [1] * (x.shape.rank - 1))
    return tf.where(bad_rows, tf.constant(filler, x.dtype), x)


def in_xla() -> bool:
    """Whether XLA, also for a TPU, compiles the graph: it would drop the assertion."""
    # TensorFlow has no public function for this.
    is_within = private(
        "tensorflow.python.ops.control_flow_util", "GraphOrParentsInXlaContext"
    )
    return is_within(tf.compat.v1.get_default_graph())


def same_sizes(x: Tensor, other: Tensor, rule: str, num_axes: int = 1) -> Tensor:
    """Returns `x`; raises for what broadcasting would hide, even if XLA compiles it."""
    # Compares the sizes of x and other along the first `num_axes` axes. The rule is a
    # sentence that names the argument. Known sizes raise `ValueError`, other ones
    # TensorFlow's `InvalidArgumentError`, whose text has the rule as a name under XLA.
    # XLA compares bounds where sizes are dynamic, as after `tf.boolean_mask`. A graph
    # that was traced elsewhere and is then compiled has an assertion, which XLA drops.
    static, other_static = x.shape[:num_axes], other.shape[:num_axes]
    if not static.is_compatible_with(other_static):
        raise ValueError(f"{rule} Received: shapes {x.shape} and {other.shape}.")
    if static.is_fully_defined() and other_static.is_fully_defined():
        return x
    # XLA drops assertions, but knows sizes, and `Select` requires equal ones.
    if in_xla():
        name = re.sub(r"\W+", "_", rule).strip("_")
        sizes = tf.concat([tf.shape(other)[:num_axes], tf.shape(x)[num_axes:]], axis=0)
        return tf.raw_ops.Select(condition=tf.ones(sizes, tf.bool), x=x, y=x, name=name)
    # `tf.debugging.assert_equal` and slices would take twice as many operations.
    sizes, other_sizes = (
        tf.shape(t)
        if t.shape.rank == num_axes
        else tf.stack(tf.unstack(tf.shape(t))[:num_axes])
        for t in (x, other)
    )
    assertion = tf.raw_ops.Assert(
        condition=tf.reduce_all(tf.equal(sizes, other_sizes)),
        data=[f"{rule} Received: sizes", sizes, other_sizes],
        summarize=5,
    )
    # This error comes before those that the bad values cause.
    with tf.control_dependencies([assertion]):
        return tf.identity(x)
