"""What every operation on lists with positives does first."""

import functools
from typing import NamedTuple

import tensorflow as tf

from rank4class_tf.ops import _pairs
from rank4class_tf.ops._gather import gather, indices, scatter_add
from rank4class_tf.ops._where import where


class Positives(NamedTuple):
    """A batch of lists, ready for a formula.

    Attributes:
        scores: `[batch, n]`; an item that is not there has a score so low that it counts for
            nothing, yet finite, so that no difference of scores is NaN.
        class_ids: `[batch, P]` int32, 0 where padded.
        relevance: `[batch, P]`, 0 where padded.
        positive_scores: `[batch, P]`.
    """

    scores: tf.Tensor
    class_ids: tf.Tensor
    relevance: tf.Tensor
    positive_scores: tf.Tensor

    @property
    def present(self):
        """`[batch, n]` booleans, False for an item that is not there."""
        return is_there(self.scores)

    @property
    def count(self):
        """How many leading columns hold all positives of the batch, a scalar."""
        return _pairs.visited(self.relevance)

    def sum_over_items(self, function, items=(), positives=()):
        """`sum_j function(score_j, ..., score_p, ...)` for each positive p, `[batch, P]`."""
        return _pairs.sum_over_items(
            function,
            [self.scores, *items],
            [self.positive_scores, *positives],
            self.count,
        )

    def sum_over_differences(self, function):
        """`sum_j function(score_j - score_p)` for each positive p, `[batch, P]`."""
        if self.class_ids.shape[1] != 1:
            return self.sum_over_items(lambda s, p: function(s - p))
        differences = _differences(self.scores, self.class_ids)
        return tf.reduce_sum(function(differences), axis=-1, keepdims=True)

    def item_relevance(self):
        """Relevance by item, `[batch, n]`."""
        # Padding stands on item 0 with relevance 0, and adds nothing there.
        return scatter_add(self.class_ids, self.relevance, tf.shape(self.scores))

    def negative_scores(self):
        """The scores, as of items that are not there where an item is positive, `[batch, n]`.

        For functions that are constant at such scores, whose gradient there is 0.
        """
        ids = self.class_ids
        if ids.shape[1] != 1:
            # Padding overwrites what the best positive overwrites anyway.
            best = tf.argmax(self.relevance, axis=-1, output_type=tf.int32)
            best = tf.gather(ids, best[:, tf.newaxis], batch_dims=1)
            ids = tf.where(self.relevance > 0, ids, best)

        @tf.custom_gradient
        def without_positives(scores):
            scores = tf.tensor_scatter_nd_update(
                scores, indices(ids), tf.fill(tf.shape(ids), lowest(scores.dtype))
            )
            return scores, lambda upstream: upstream

        return without_positives(self.scores)


def _differences(scores, class_ids):
    """The scores `[batch, n]` less that of the one positive; the gradient takes half the passes."""

    @tf.custom_gradient
    def differences(scores):
        def gradient(upstream):
            total = tf.reduce_sum(upstream, axis=-1, keepdims=True)
            return tf.tensor_scatter_nd_sub(upstream, indices(class_ids), total)

        return scores - tf.gather(scores, class_ids, batch_dims=1), gradient

    return differences(scores)


def lowest(dtype):
    """The score of an item that is not there, a scalar."""
    return tf.constant(dtype.min / 8, dtype)


def is_there(scores):
    """Booleans, False for the score of an item that is not there; a NaN is."""
    # Of a negated comparison, TensorFlow makes one in a graph that a NaN fails.
    return scores != lowest(scores.dtype)


def with_floor(scores, dtype=None):
    """Scores with -inf made the lowest that differs from any score by a finite number.

    For functions that are constant at such scores, whose gradient there is 0.
    """
    return _with_floor(tf.convert_to_tensor(scores, dtype))


@tf.custom_gradient
def _with_floor(scores):
    # A NaN stays one.
    return tf.maximum(scores, lowest(scores.dtype)), lambda upstream: upstream


def keep_nan(losses, *scores):
    """Losses `[batch]`, NaN, with their gradient, where a list has a NaN among its scores."""
    has_nan = [tf.reduce_any(tf.math.is_nan(of_list), axis=-1) for of_list in scores]
    without = ~functools.reduce(tf.logical_or, has_nan)
    factor = where(without, tf.ones_like(losses), float("nan"))
    # One operation in the gradient too, unlike a product of two shapes that only run time knows.
    return tf.custom_gradient(lambda x: (x * factor, lambda upstream: upstream * factor))(losses)


def prepare(scores, class_ids, relevance=None):
    """Brings the arguments that all operations share to `Positives`.

    Args:
        scores: floating `[batch, n]`; -inf marks an item that is not there.
        class_ids: integer `[batch, P]`, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
    """
    scores = with_floor(scores)
    class_ids = tf.cast(class_ids, tf.int32)
    there = class_ids >= 0
    if relevance is None:
        relevance = tf.ones_like(class_ids, scores.dtype)
    relevance = where(there, tf.cast(relevance, scores.dtype), 0.0)
    class_ids = tf.maximum(class_ids, 0)
    return Positives(scores, class_ids, relevance, gather(scores, class_ids))
