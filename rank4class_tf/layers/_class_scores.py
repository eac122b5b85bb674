"""Scores of some classes for extreme classification: dot products or cosines, in float32."""

from typing import Any

import tensorflow as tf

from rank4class_tf._lists.blocked import ClassProducts
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
        self.table: Any = None  # What graphs of eager calls have read.

    def of(self, classes: Any) -> "ClassScores":
        """The same scores for other classes."""
        return ClassScores(classes, self.normalize)

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
        (rows,) = self.classes.rows_of_step(ids)
        rows = tf.cast(rows, tf.float32)
        if not gradient:
            rows = tf.stop_gradient(rows)
        biases = self.classes.biases(ids)
        if self.normalize and not gradient and rows.shape[-1] > _WIDE:
            scores = _products(encodings, rows) / norms(rows)[..., 0]
            return scores if biases is None else scores + tf.cast(biases, tf.float32)
        return self.of_rows(encodings, rows, biases)

    def of_step(self, encodings: tf.Tensor, *ids: tf.Tensor) -> list[tf.Tensor]:
        """Scores of several ids, with gradients; each as in a call."""
        rows = self.classes.rows_of_step(*ids)
        return [
            self.of_rows(encodings, tf.cast(x, tf.float32), self.classes.biases(of))
            for x, of in zip(rows, ids, strict=True)
        ]

    def of_rows(
        self, encodings: tf.Tensor, rows: tf.Tensor, biases: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Scores of classes by their rows, `[m, d]` or `[batch, m, d]`."""
        scores = _products(encodings, self.scaled(rows))
        return scores if biases is None else scores + tf.cast(biases, tf.float32)

    def over_classes(self, encodings: tf.Tensor, scale: float = 1.0) -> ClassProducts:
        """The scores of all classes times a scale, before they are computed."""
        encodings = scale * self.scaled(encodings)
        return ClassProducts(encodings, self.classes.tables(), self.of_rows, self.classes.shard())


def _products(encodings, rows):
    if rows.shape.rank == 2:
        return tf.matmul(encodings, rows, transpose_b=True)
    if (rows.shape[1] or _FEW) < _FEW:
        return tf.reduce_sum(rows * tf.expand_dims(encodings, 1), axis=-1)
    return tf.einsum("bmd,bd->bm", rows, encodings)
