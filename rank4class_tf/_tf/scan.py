"""Running maxima and sums of rows, from the right.

`most` is how many entries of a row count, the first ones, which bounds the work where the length of
rows is known only while running: at 64 x 200 grades, half the time of ListMLE. None if unknown.
"""

from collections.abc import Callable

import tensorflow as tf


def maxima(values: tf.Tensor, most: int | None = None) -> tf.Tensor:
    """The highest of each entry and those to its right, `[batch, n]`; it has no gradient."""

    def join(width, values):
        return [tf.maximum(values, _shifted(values, width, values.dtype.min))]

    return _doubling([tf.stop_gradient(values)], join, values, most)[0]


def decaying_sums(values: tf.Tensor, decay: tf.Tensor, most: int | None = None) -> tf.Tensor:
    """The sums `S_k = values_k + decay_k S_(k+1)`, each exact up to rounding.

    Args:
        values: `[batch, n]`.
        decay: `[batch, n]`, in [0, 1]; it has no gradient.
        most: see above; then the gradient counts only where the upstream one is of these entries.
    """

    @tf.custom_gradient
    def sums(values):
        def gradient(upstream):
            # The same from the left, where the decay of the neighbour counts.
            of_neighbour = _shifted(tf.reverse(decay, [1]), 1)
            return tf.reverse(_sums(tf.reverse(upstream, [1]), of_neighbour, most), [1])

        return _sums(values, decay, most), gradient

    return sums(values)


def _sums(values, decay, most):
    def join(width, values, decay):
        values += decay * _shifted(values, width)
        return [values, decay * _shifted(decay, width)]

    return _doubling([values, decay], join, values, most)[0]


def _doubling(
    state: list[tf.Tensor], join: Callable, rows: tf.Tensor, most: int | None
) -> list[tf.Tensor]:
    """Joins what stands for 1, 2, 4, ... entries with what stands for as many to the right."""
    width = rows.shape[1] or most or 2**30
    for bit in range((width - 1).bit_length()):
        state = join(2**bit, *state)
    return state


def _shifted(rows, width, fill=0):
    """The rows moved to the left."""
    width = tf.minimum(width, tf.shape(rows)[1]) if rows.shape[1] is None else width
    moved = tf.pad(rows[:, width:], [[0, 0], [0, width]], constant_values=fill)
    return tf.ensure_shape(moved, rows.shape)
