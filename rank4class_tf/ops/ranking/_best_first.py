"""Sorts lists by their scores, and puts values back in their old order."""

from typing import NamedTuple

import tensorflow as tf

from rank4class_tf._tf.gather import scatter_add


class BestFirst(NamedTuple):
    """Scores in falling order, masked items last.

    Attributes:
        scores: `[batch, d]`.
        order: `[batch, d]` int32, which item is at each place.
    """

    scores: tf.Tensor
    order: tf.Tensor

    def sort(self, values: tf.Tensor) -> tf.Tensor:
        """Puts values of the items into the order of the scores."""
        return tf.gather(values, self.order, batch_dims=1)

    def restore(self, values: tf.Tensor) -> tf.Tensor:
        """Puts values in the order of the scores back to their items."""
        return scatter_add(self.order, values, tf.shape(values))


def best_first(scores: tf.Tensor, mask: tf.Tensor | None) -> BestFirst:
    """Sorts lists.

    Args:
        scores: `[batch, d]`, finite, and far from the largest number of their dtype.
        mask: booleans `[batch, d]`, False for an item that comes last; None if no item is masked.
    """
    if mask is not None:
        # A finite number makes differences of masked items 0, not NaN.
        scores = tf.where(mask, scores, tf.constant(scores.dtype.min / 4, scores.dtype))
    return BestFirst(*tf.math.top_k(scores, scores.shape[1] or tf.shape(scores)[1]))
