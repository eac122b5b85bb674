"""The items of each list that an evaluation keeps."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from rank4class_tf import metrics as _metrics
from rank4class_tf._lists.batch import Batch
from rank4class_tf._types import Tensor
from rank4class_tf.metrics.base import without_weightless
from rank4class_tf.metrics.ranked_ids import ids_as_integers
from rank4class_tf.ops import Ranks

# How many of the highest items of each list an evaluation keeps.
NUM_TOP_CLASSES = 10


class Items(NamedTuple):
    """The items of each list that an `Evaluation` keeps, int64."""

    most_relevant: Tensor  # `[lists]`, -1 if there is none.
    top: Tensor  # `[lists, m]`, those with the highest scores, padded with -1.
    positives: Tensor  # `[lists, P]`, padded with -1.

    @classmethod
    def of_ranks(cls, ranks: Ranks, ranked: _metrics.RankedIds | None = None) -> Items:
        """The items of ranks. Only `ranked` tells which are the highest."""
        positives = tf.where(ranks.relevance > 0, ranks.class_ids, -1)
        most_relevant = tf.cast(tf.reduce_max(positives, axis=-1), tf.int64)
        top = tf.zeros([tf.shape(positives)[0], 0], tf.int64)
        if ranked is not None:
            top = ids_as_integers(ranked.ids)[:, :NUM_TOP_CLASSES]
        return cls(most_relevant, top, positives)

    @classmethod
    def of_labels(cls, batch: Batch) -> Items:
        """The items of labels and scores."""
        labels = batch.labels
        highest = tf.reduce_max(labels.relevance, axis=-1, keepdims=True)
        most_relevant = tf.where(labels.relevance == highest, labels.positives, -1)
        most_relevant = tf.cast(tf.reduce_max(most_relevant, axis=-1), tf.int64)

        # -inf is a score, and ranks above masked items.
        scores = labels.scores
        lowest = tf.constant(-float("inf"), scores.dtype)
        is_nan = tf.math.is_nan(scores)
        scores = tf.where(is_nan, lowest, tf.maximum(scores, scores.dtype.min))
        if labels.mask is not None:
            scores = tf.where(labels.mask, scores, lowest)
        num_top = tf.minimum(NUM_TOP_CLASSES, tf.shape(scores)[1])
        top_scores, top = tf.math.top_k(scores, num_top)
        top = tf.cast(tf.where(top_scores > lowest, top, -1), tf.int64)
        return cls(most_relevant, top, without_weightless(batch).positives)
