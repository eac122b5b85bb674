"""The pairwise hinge loss by sorting and prefix sums."""

import tensorflow as tf

from rank4class_tf._lists.lists import Lists
from rank4class_tf._tf.gather import inverse


def value_and_gradients(lists: Lists, margin: float) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Computes `sum max(0, margin - (s_i - s_j))` over the pairs with `y_i > y_j`.

    The items that a positive does not beat by the margin lie above the threshold `s_i - margin`.
    With items and thresholds in one order, their number and the sum of their scores are prefix
    sums over the less relevant items, one pass for each distinct label above 0. The gradient is
    made on the way.

    Args:
        lists: `Lists`.
        margin: > 0.

    Returns:
        `[batch]`, and its gradients `[batch, n]` and `[batch, P]`.
    """
    # In float64, so that what the prefix sums of far items leave behind is no error of near ones.
    # Only differences count, which have the more digits the nearer to 0 the scores are.
    dtype = lists.dtype
    highest = tf.cast(lists.max(), tf.float64)[:, tf.newaxis]
    scores = tf.cast(lists.scores, tf.float64) - highest
    positive_scores = tf.cast(lists.positive_scores, tf.float64) - highest
    batch, n = tf.unstack(tf.shape(scores))
    width = tf.shape(positive_scores)[1]
    # A threshold comes before an item of the same score: at the margin the hinge is flat.
    values = tf.concat([positive_scores - margin, scores], axis=1)
    order = tf.argsort(values, axis=-1, direction="DESCENDING", stable=True)
    slots = inverse(order)
    sorted_scores = tf.gather(values, order, batch_dims=1)
    relevance = lists.relevance
    item_labels = tf.where(lists.mask, lists.item_relevance(), -1)
    labels = tf.concat([-tf.ones_like(relevance), item_labels], axis=1)
    labels = tf.gather(labels, order, batch_dims=1)
    thresholds, item_slots = slots[:, :width], slots[:, width:]

    def add_label(level, value, of_items, of_positives):
        is_less = (labels >= 0) & (labels < level)
        less = tf.cast(is_less, tf.float64)
        counts = tf.gather(tf.cumsum(less, axis=-1), thresholds, batch_dims=1)
        sums = tf.cumsum(tf.where(is_less, sorted_scores, 0), axis=-1)
        sums = tf.gather(sums, thresholds, batch_dims=1)
        is_here = (relevance == level) & (relevance > 0)
        here = tf.cast(is_here, tf.float64)
        value += tf.reduce_sum(
            tf.where(is_here, counts * (margin - positive_scores) + sums, 0), axis=-1
        )
        # An item takes part in the hinge of every threshold below it.
        marks = tf.concat([here, tf.zeros([batch, n], tf.float64)], axis=1)
        marks = tf.gather(marks, order, batch_dims=1)
        below = tf.cumsum(marks, axis=-1, reverse=True)
        of_items += tf.gather(less * below, item_slots, batch_dims=1)
        of_positives -= here * counts
        next_level = tf.reduce_max(
            tf.where(relevance < level, relevance, tf.zeros_like(relevance)), axis=-1
        )
        return next_level[:, tf.newaxis], value, of_items, of_positives

    level = tf.reduce_max(relevance, axis=-1, keepdims=True)
    start = (
        level,
        tf.zeros([batch], tf.float64),
        tf.zeros([batch, n], tf.float64),
        tf.zeros([batch, width], tf.float64),
    )
    _, value, of_items, of_positives = tf.while_loop(
        lambda level, *_: tf.reduce_any(level > 0), add_label, start
    )
    # Where a NaN is sorted to, it may stay out of all sums.
    nan = tf.where(tf.math.is_nan(scores), scores, tf.zeros_like(scores))
    value = tf.maximum(value, 0) + tf.reduce_sum(nan, axis=-1)
    value, *gradients = (tf.cast(x, dtype) for x in (value, of_items, of_positives))
    return value, gradients
