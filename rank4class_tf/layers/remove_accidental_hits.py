"""RemoveAccidentalHits."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._tf.gather import indices
from rank4class_tf.layers._columns import of_columns, scores_and_columns


@_keras.register
class RemoveAccidentalHits(keras.layers.Layer):
    """Masks negatives that are in fact the positive: other columns with the same candidate.

    If the candidates of a batch are negatives of each other, a frequent candidate occurs more than
    once. A masked item has the score -inf. The losses of this package leave it out, and so does
    Keras's `SparseCategoricalCrossentropy(from_logits=True)`.

    Source: Bengio and Senécal 2008 for the idea; TensorFlow's `compute_accidental_hits`.

    Args:
        **kwargs: arguments of Keras, such as `name`. `dtype` is float32 unless given.

    Inputs: scores `[batch, n]`; labels `[batch]` or `[batch, P]`, the columns of the positives, -1
    for none; and candidate ids, integers or strings, `[n]` shared by all lists or `[batch, n]`.

    Output: scores `[batch, n]`.

    Raises:
        ValueError: if a shape is wrong, a column does not exist or ids have the wrong type;
            under XLA, a list with such a column gets a NaN instead.

    Example:
        >>> scores, labels, ids = [[3.0, 1.0, 2.0]], [0], [7, 8, 7]
        >>> RemoveAccidentalHits()(*map(tf.constant, (scores, labels, ids))).numpy()
        array([[  3.,   1., -inf]], dtype=float32)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "float32", **kwargs})

    def call(self, scores: Any, labels: Any, candidate_ids: Any) -> tf.Tensor:
        """Returns the scores with -inf for such negatives."""
        scores, column, there, zero = scores_and_columns(scores, labels)
        ids = _checks.ids("candidate_ids", candidate_ids)
        ids = of_columns("candidate_ids", ids, scores)
        own = tf.gather(ids, column, batch_dims=ids.shape.rank - 1)
        if own.shape[1] == 1:
            hits = (own == ids) & there
        else:  # One positive at a time, so that no [batch, P, n] tensor appears.
            hits = tf.foldl(
                lambda hits, of: hits | (of[0][:, tf.newaxis] == ids) & of[1][:, tf.newaxis],
                (tf.transpose(own), tf.transpose(there)),
                tf.zeros_like(scores, tf.bool),
                parallel_iterations=1,
            )
        penalties = tf.where(hits, tf.constant(-float("inf"), zero.dtype), 0.0)
        zeros = tf.broadcast_to(zero, tf.shape(column))
        penalties = tf.tensor_scatter_nd_update(penalties, indices(column), zeros)
        # An addition costs nothing in the backward pass.
        return scores + penalties
