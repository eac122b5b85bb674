"""Scores of some classes for extreme classification: dot products or cosines, in float32."""

from typing import Any

import tensorflow as tf

from rank4class_tf.ops.classes.interactions import norms, unit_rows

# For wider rows it costs less to scale the scores than the rows.
_WIDE = 256

# For fewer classes an example, products of all numbers and sums take less time than einsum.
_FEW = 4


class ClassScores:
    """Scores encodings with classes by their ids.

    Args:
        classes: a layer of classes.
        normalize: whether encodings and rows of classes are scaled to length 1.
    """

    def __init__(self, classes: Any, normalize: bool) -> None:
        self.classes = classes
        self.normalize = normalize

    def scaled(self, rows: tf.Tensor) -> tf.Tensor:
        """Encodings or rows of classes as they are multiplied."""
        rows = tf.cast(rows, tf.float32)
        return unit_rows(rows) if self.normalize else rows

    def __call__(self, encodings: tf.Tensor, ids: tf.Tensor, gradient: bool = True) -> tf.Tensor:
        """Scores of classes that are shared `[m]`, or of each example's own `[batch, m]`.

        Args:
            encodings: `[batch, d]`, scaled.
            ids: integers.
            gradient: whether the classes get a gradient.
        """
        rows = tf.cast(self.classes.rows(ids), tf.float32)
        if not gradient:
            rows = tf.stop_gradient(rows)
        scale_scores = self.normalize and not gradient and rows.shape[-1] > _WIDE
        if not scale_scores:
            rows = self.scaled(rows)
        if ids.shape.rank == 1:
            scores = tf.matmul(encodings, rows, transpose_b=True)
        elif (ids.shape[1] or _FEW) < _FEW:
            scores = tf.reduce_sum(rows * tf.expand_dims(encodings, 1), axis=-1)
        else:
            scores = tf.einsum("bmd,bd->bm", rows, encodings)
        if scale_scores:
            scores /= norms(rows)[..., 0]
        biases = self.classes.biases(ids)
        return scores if biases is None else scores + tf.cast(biases, tf.float32)
