"""The pairwise hinge loss by sorting and prefix sums."""

import tensorflow as tf

from rank4class_tf._lists.lists import Lists
from rank4class_tf._tf.exact import violation
from rank4class_tf._tf.gather import inverse, scatter_add
from rank4class_tf._tf.search import count_leading


def value_and_gradients(lists: Lists, margin: float) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Computes `sum max(0, margin - (s_i - s_j))` over the pairs with `y_i > y_j`.

    The items that a positive does not beat by the margin are the first of those in falling order.
    How far they lie above the last of them is a prefix sum over the less relevant items, one pass
    for each distinct label above 0. All terms that are added are positive differences of
    neighbours, so that nothing cancels. The gradient is made on the way.

    Args:
        lists: `Lists`.
        margin: > 0.

    Returns:
        `[batch]`, and its gradients `[batch, n]` and `[batch, P]`.
    """
    scores, positive_scores, relevance = lists.scores, lists.positive_scores, lists.relevance
    weights = lists.positive_weights
    order = tf.argsort(scores, axis=-1, direction="DESCENDING")
    falling = tf.gather(scores, order, batch_dims=1)
    # At the margin the hinge is flat.
    above = count_leading(falling, positive_scores, lambda s, p: s - p > -margin)
    last = tf.maximum(above - 1, 0)
    beyond = violation(tf.gather(falling, last, batch_dims=1) - positive_scores, margin)
    falls = tf.pad(falling[:, :-1] - falling[:, 1:], [[0, 0], [1, 0]])
    labels = tf.gather(tf.where(lists.mask, lists.item_relevance(), -1), order, batch_dims=1)

    def add_label(level, value, of_items, of_positives):
        less = tf.cast((labels >= 0) & (labels < level), scores.dtype)
        before = tf.cumsum(less, axis=-1, exclusive=True)
        heights = tf.gather(tf.cumsum(before * falls, axis=-1), last, batch_dims=1)
        counts = tf.gather(before + less, last, batch_dims=1)
        here = (relevance == level) & (relevance > 0) & (above > 0)
        counts, heights = tf.where(here, counts, 0), tf.where(here, heights, 0)
        share = tf.cast(here, scores.dtype)
        if weights is not None:
            counts, heights, share = counts * weights, heights * weights, share * weights
        value += tf.reduce_sum(heights + counts * beyond, axis=-1)
        # An item takes part in the hinge of every positive that ends at it or below.
        ends = scatter_add(last, share, tf.shape(scores))
        of_items += less * tf.cumsum(ends, axis=-1, reverse=True)
        of_positives -= counts
        next_level = tf.reduce_max(
            tf.where(relevance < level, relevance, tf.zeros_like(relevance)), axis=-1
        )
        return next_level[:, tf.newaxis], value, of_items, of_positives

    level = tf.reduce_max(relevance, axis=-1, keepdims=True)
    start = (level, tf.zeros_like(level[:, 0]), tf.zeros_like(scores), tf.zeros_like(relevance))
    _, value, of_items, of_positives = tf.while_loop(
        lambda level, *_: tf.reduce_any(level > 0), add_label, start
    )
    of_items = tf.gather(of_items, inverse(order), batch_dims=1)
    # Sorting may put a NaN where no sum reads it.
    nan = tf.where(tf.math.is_nan(scores), scores, tf.zeros_like(scores))
    return value + tf.reduce_sum(nan, axis=-1), [of_items, of_positives]
