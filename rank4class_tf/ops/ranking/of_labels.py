"""Ranks of labels of any form, with as few columns as a metric reads."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf._lists.columns import over_positives
from rank4class_tf._lists.labels import Labels
from rank4class_tf._tf import raising, top
from rank4class_tf.ops.ranking.exact import (
    Ranks,
    count_among,
    count_one_by_one,
    highest_of,
    of_counts,
    ranks_of_checked,
    without_masked,
)

# Searching the highest items pays in lists of more than so many times `depth` items.
_LONG = 4


def over_ranks(
    function: Callable[[Ranks], Any],
    labels: Labels,
    dtype: tf.DType,
    depth: int | None = None,
    reads: str = "all",
) -> Any:
    """Applies a function without gradients to the ranks of the positives.

    Args:
        function: takes `Ranks`; the shape of its result must not depend on their number of columns.
        labels: `Labels`.
        dtype: float32 or float64, that of the ranks.
        depth: None, or the number of ranks that matter.
        reads: what the function reads: `"all"` positives; `"best"`, only the positives with the
            highest score; or `"leading"`, only the positives among the first `depth` ranks, the
            `depth` most relevant positives, and the number of positives. With the weights of items
            that labels may have, it reads all.
    """
    if reads == "best" and labels.max_positives != 1:
        return function(_ranks_of_best(labels, dtype))

    def of_positives(class_ids, relevance):
        ranks = ranks_of_checked(labels.scores, class_ids, relevance, labels.mask, depth, dtype)
        if labels.item_weights is not None:
            weights = tf.gather(labels.item_weights, tf.maximum(class_ids, 0), batch_dims=1)
            ranks = ranks._replace(weights=tf.where(class_ids >= 0, tf.cast(weights, dtype), 0))
        return function(ranks)

    n = labels.scores.shape[1]
    is_leading = reads == "leading" and labels.class_ids is None and labels.item_weights is None
    if is_leading and n is not None and depth is not None and n > _LONG * depth:
        ranks, is_whole = _leading_ranks(labels, dtype, depth)
        return tf.cond(
            is_whole,
            lambda: function(ranks),
            lambda: of_positives(labels.positives, labels.relevance),
        )
    return over_positives(of_positives, labels)


def _ranks_of_best(labels, dtype):
    """Ranks of the positives with the highest score, which take a maximum and one count."""
    scores, ids = without_masked(labels.scores, labels.mask), labels.class_ids
    positives = scores if ids is None else tf.gather(scores, tf.maximum(ids, 0), batch_dims=1)
    there = (labels.relevance > 0) & ~tf.math.is_nan(positives)
    lowest = tf.constant(-float("inf"), scores.dtype)
    best = tf.reduce_max(tf.where(there, positives, lowest), axis=1, keepdims=True)
    is_best = there & (positives == best)
    # Any columns would do; these are the fewest.
    if ids is None and not raising.in_xla():
        number = tf.math.count_nonzero(is_best, axis=1, keepdims=True, dtype=tf.int32)
        is_best = tf.range(tf.maximum(tf.reduce_max(number), 1)) < number
    above, tied = count_one_by_one(scores, best)
    counts = tf.where(is_best, above, 0), tf.where(is_best, tied, 0)
    return of_counts(counts, tf.cast(is_best, dtype), labels.scores, labels.mask)


def _leading_ranks(labels, dtype, depth):
    """Ranks of the positives among the highest items, and of the most relevant positives.

    Returns:
        `Ranks`, in which only positives among the highest items may be hits; and a scalar boolean,
        False if a positive outside the highest items ties with the last of them.
    """
    scores, relevance = without_masked(labels.scores, labels.mask), labels.relevance
    highest, places = highest_of(scores, depth)
    of_highest = tf.gather(relevance, places, batch_dims=1)
    own = tf.gather(scores, places, batch_dims=1)
    most, most_places = top.top_k(relevance, places.shape[1])
    repeated = tf.reduce_any(most_places[..., tf.newaxis] == places[:, tf.newaxis], axis=-1)

    def ties(scores, relevance):
        tied = (scores == highest[:, -1:]) & (relevance > 0)
        return tf.math.count_nonzero(tied, axis=1, dtype=tf.int32)

    is_whole = tf.reduce_all(ties(scores, relevance) == ties(own, of_highest))
    nan = tf.constant(float("nan"), scores.dtype)
    thresholds = tf.where(of_highest > 0, own, nan)
    above, tied = count_among(highest, scores, thresholds)
    missing = [[0, 0], [0, places.shape[1]]]
    counts = tf.pad(above, missing), tf.pad(tied, missing)
    columns = tf.concat([of_highest, tf.where(repeated, tf.zeros_like(most), most)], axis=1)
    number = tf.cast(labels.num_positives, dtype)
    ranks = of_counts(counts, tf.cast(columns, dtype), labels.scores, labels.mask, number)
    return ranks, is_whole
