"""What all interactions share."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _config, _keras
from rank4class_tf._tf.raising import same_sizes


class Interaction(keras.layers.Layer):
    """Base: how an encoding and the encodings of classes, or of documents, meet in a score.

    A subclass has `score_candidates`, and `build_for` where it has weights. Under
    `rank4class_tf.layers.Head(classes, interaction)` it is a head.

    Input: a list of encodings `[batch, d]` and candidates, `[n, c]` for all examples alike or
    `[batch, n, c]`. Output: `[batch, n]`.

    Example:
        >>> class NegativeDistance(Interaction):
        ...     def score_candidates(self, encodings, candidates, training=None):
        ...         return -tf.norm(encodings[:, tf.newaxis] - candidates, axis=-1)
        >>> NegativeDistance()([tf.zeros([1, 2]), tf.constant([[3.0, 4.0]])]).numpy()
        array([[-5.]], dtype=float32)
    """

    def build(self, input_shape: Any) -> None:
        """Creates the weights for the shapes of encodings and candidates."""
        of_encodings, of_candidates = input_shape
        self.build_for(int(of_encodings[-1]), int(of_candidates[-1]))
        self.built = True

    def build_for(self, width: int, class_width: int) -> None:
        """Creates the weights for encodings and candidates of these widths."""

    def call(self, inputs: Any, training: Any = None) -> tf.Tensor:
        """Returns the scores, `[batch, n]`."""
        encodings, candidates = inputs
        if len(candidates.shape) == 3:
            rule = "`candidates` must have a row for each encoding."
            candidates = same_sizes(candidates, encodings, rule)
        score_candidates = _keras.converted(self.score_candidates)
        return score_candidates(encodings, candidates, training)

    def score_candidates(
        self, encodings: tf.Tensor, candidates: tf.Tensor, training: Any = None
    ) -> tf.Tensor:
        """The formula.

        Args:
            encodings: `[batch, d]`.
            candidates: `[n, c]` or `[batch, n, c]`.
            training: whether this is a step of training.

        Returns:
            The scores, `[batch, n]`.
        """
        raise NotImplementedError

    def start_as_dot_product(self) -> None:
        """Sets the weights, which are built, such that the scores are dot products."""
        raise ValueError(
            "`from_dense` needs an interaction that can start as a dot product, which "
            f"`start_as_dot_product` makes it. Received: {type(self).__name__}."
        )

    def compute_output_shape(self, input_shape: Any) -> tuple:
        """Returns `(batch, n)`."""
        of_encodings, of_candidates = input_shape
        return (of_encodings[0], of_candidates[-2])

    def get_config(self) -> dict:
        """Returns the constructor arguments."""
        return {**super().get_config(), **_config.constructor_arguments(self, Interaction)}


def check_same_width(width: int, class_width: int) -> None:
    """Raises unless encodings and candidates are equally wide."""
    if width != class_width:
        raise ValueError(
            "`classes` must be as wide as the encodings for this interaction. "
            f"Received: classes of width {class_width}, encodings of width {width}."
        )


def dot_products(encodings: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """The scores of each encoding with its candidates, `[batch, n]`."""
    if candidates.shape.rank == 2:
        return tf.matmul(encodings, candidates, transpose_b=True)
    return tf.linalg.matvec(candidates, encodings)
