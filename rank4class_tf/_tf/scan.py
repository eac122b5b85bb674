"""Running maxima and sums of rows, from the right."""

from collections.abc import Callable

import tensorflow as tf


def maxima(values: tf.Tensor) -> tf.Tensor:
    """The highest of each entry and those to its right, `[batch, n]`; it has no gradient."""

    def join(width, values):
        return [tf.maximum(values, _shifted(values, width, values.dtype.min))]

    return _doubling([tf.stop_gradient(values)], join, values)[0]


def decaying_sums(values: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
    """The sums `S_k = values_k + decay_k S_(k+1)`, each exact up to rounding.

    Args:
        values: `[batch, n]`.
        decay: `[batch, n]`, in [0, 1]; it has no gradient.
    """

    @tf.custom_gradient
    def sums(values):
        def gradient(upstream):
            # The same from the left, where the decay of the neighbour counts.
            of_neighbour = _shifted(tf.reverse(decay, [1]), 1)
            return tf.reverse(_sums(tf.reverse(upstream, [1]), of_neighbour), [1])

        return _sums(values, decay), gradient

    return sums(values)


def _sums(values, decay):
    def join(width, values, decay):
        values += decay * _shifted(values, width)
        return [values, decay * _shifted(decay, width)]

    return _doubling([values, decay], join, values)[0]


def _doubling(state: list[tf.Tensor], join: Callable, rows: tf.Tensor) -> list[tf.Tensor]:
    """Joins what stands for 1, 2, 4, ... entries with what stands for as many to the right."""
    for bit in range((max(rows.shape[1] - 1, 0) if rows.shape[1] else 2**30).bit_length()):
        state = join(2**bit, *state)
    return state


def _shifted(rows, width, fill=0):
    """The rows moved to the left."""
    width = tf.minimum(width, tf.shape(rows)[1]) if rows.shape[1] is None else width
    moved = tf.pad(rows[:, width:], [[0, 0], [0, width]], constant_values=fill)
    return tf.ensure_shape(moved, rows.shape)
