"""Gradients made with values, conditions within loops, and NaN that must not get lost.

Where the batch size is unknown, XLA cannot compile TensorFlow's gradient of a choice
made at run time; `with_ready_gradients` and `cond` take its place.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf._types import Function, Tensor, Tensors, WithGradient


def with_ready_gradients(function: Callable, *inputs: Tensor) -> Tensor:
    """Values `[batch]` computed with their gradients, without second derivatives."""
    # The function maps tensors of rank 2 to values `[batch]` and a list of their
    # gradients, one in the shape of each input. An example depends only on its own
    # inputs. The function may read variables, such as a layer's weights.

    @tf.custom_gradient
    def values(*inputs: Tensor) -> WithGradient:
        # The gradient of a variable is a sum over the batch, which needs the upstream,
        # so this tape records what variables flow into. The backward pass must not call
        # the function again: it would read variables after the optimizer's write, and
        # draw the next step's numbers.
        with tf.GradientTape(persistent=True) as tape:  # Nested calls read it twice.
            # Stopped, or an outer tape would differentiate this loop, which XLA cannot
            # compile.
            value, gradients = function(*map(tf.stop_gradient, inputs))
        gradients = [tf.stop_gradient(g) for g in gradients]

        def gradient(
            upstream: Tensor, variables: Sequence | None = None
        ) -> tuple[Any, ...]:
            input_gradients = tuple(upstream[:, tf.newaxis] * g for g in gradients)
            if not variables:
                return input_gradients
            return input_gradients, tape.gradient(
                value, variables, upstream, unconnected_gradients="zero"
            )

        return value, gradient

    return values(*inputs)


def value_and_gradients(
    function: Callable, *inputs: Tensor
) -> tuple[Any, list[Tensor]]:
    """A function's values and a list of their gradients; see `with_ready_gradients`."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        values = function(*inputs)
    gradients = tape.gradient(values, inputs, unconnected_gradients="zero")
    return values, [tf.stop_gradient(g) for g in gradients]


def together(tensors: Any) -> Any:
    """The tensors, in any structure, each of which waits until all are computed."""
    # A backward pass that reads variables returns its gradients through here. Otherwise
    # an optimizer may write one gradient to a variable before the pass has read that
    # variable for another: only a control edge orders the two, and grappler drops some
    # control edges.
    if tf.executing_eagerly():
        return tensors
    # An operation of a graph returns all of its results at once, if nothing inlines it.
    attributes = {"_noinline": True}
    return tf.function(
        lambda x: x, autograph=False, experimental_attributes=attributes
    )(tensors)


def cond(predicate: Tensor, true: Callable, false: Callable, *inputs: Any) -> Tensor:
    """`tf.cond` of functions of tensors, whose gradient may be taken within a loop."""
    # TensorFlow's own fails there. The gradient flows to the inputs, in any structure,
    # not to what is captured.

    @tf.custom_gradient
    def values(*tensors: Tensor) -> WithGradient:
        # Stopped, since a persistent outer tape records the gradient, and fails at the
        # loop.
        given = tf.nest.pack_sequence_as(inputs, [*map(tf.stop_gradient, tensors)])

        def gradient(upstream: Tensor) -> Tensors:
            def gradients(function: Function) -> Tensors:
                with tf.GradientTape() as tape:
                    tape.watch(given)
                    value = function(*given)
                return tape.gradient(
                    value,
                    tf.nest.flatten(given),
                    upstream,
                    unconnected_gradients="zero",
                )

            return tf.cond(predicate, lambda: gradients(true), lambda: gradients(false))

        value = tf.cond(predicate, lambda: true(*given), lambda: false(*given))
        return value, gradient

    return values(*tf.nest.flatten(inputs))


def zero_unless(condition: Tensor, values: Tensor) -> Tensor:
    """`tf.where(condition, values, 0)` of one shape, with a smaller gradient.

    The gradient has 3 operations instead of 14.
    """
    return tf.raw_ops.Select(condition=condition, x=values, y=tf.zeros_like(values))


def has_nan(rows: Tensor) -> Tensor:
    """`[batch]` booleans, True where one of the numbers of a row is NaN."""
    return tf.reduce_any(tf.math.is_nan(rows), axis=-1)


def keep_nan(losses: Tensor, *scores: Tensor) -> Tensor:
    """Makes losses `[batch]` or `[batch, P]` and gradients NaN where a score is NaN."""
    has_no_nan = ~functools.reduce(tf.logical_or, map(has_nan, scores))
    if losses.shape.rank == 2:
        has_no_nan = has_no_nan[:, tf.newaxis]
    return losses * tf.where(has_no_nan, tf.ones_like(losses), float("nan"))
