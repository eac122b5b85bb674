"""How many columns the positives take: policy for few and for many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf._lists.dense import of_columns
from rank4class_tf._lists.labels import Labels
from rank4class_tf._lists.pairs import FEW, are_few
from rank4class_tf._tf import raising, top
from rank4class_tf._tf.gather import scatter_add
from rank4class_tf._tf.gradients import value_and_gradients, with_ready_gradients


def losses_of(compute: Callable, labels: Labels, filled: tf.Tensor) -> tf.Tensor:
    """Applies a formula to lists with as few columns as hold all positives of a batch.

    Labels of all n items, most of them 0, then take only a few more passes than class ids.

    Args:
        compute: `Lists` -> `[batch]`.
        labels: `Labels`.
        filled: their scores, from `fill_masked`.

    Returns:
        `[batch]`.
    """

    def losses(filled, ids, relevance):
        return compute(of_columns(filled, ids, relevance, labels.item_weights))

    columns = _few_columns(labels)
    if columns is not None:
        return losses(filled, *columns)

    def ready(filled):
        def with_gradients(*columns):
            return value_and_gradients(lambda x: losses(x, *columns), filled)

        # Each column takes a pass over the items: there are only as many as the batch needs.
        return _few_or_many(with_gradients, labels, lambda: _compact(labels))

    # TensorFlow's gradient of a choice made while it runs takes more time, and fails under XLA
    # where the size of the batch is not known.
    return with_ready_gradients(ready, filled)


def over_positives(function: Callable, labels: Labels) -> Any:
    """Applies a function without gradients to few columns that hold all positives, or to all.

    Args:
        function: of class ids `[batch, P]`, padded with -1, and relevance `[batch, P]`; the shape
            of its result does not depend on P.
        labels: `Labels`.

    Returns:
        The result of the function.
    """
    columns = _few_columns(labels)
    if columns is not None:
        return function(*columns)
    return _few_or_many(function, labels, lambda: (labels.positives, labels.relevance))


def _few_columns(labels):
    """Ids and relevance `[batch, P]` of labels that cannot have many positives; otherwise None."""
    if not are_few(labels.max_positives, labels.scores.shape[1]):
        return None
    if labels.class_ids is not None:
        return labels.class_ids, labels.relevance
    most = labels.max_positives
    if most is None or most > FEW:  # Lists are short.
        most = tf.maximum(tf.reduce_max(labels.num_positives), 1)
    return _most_relevant(labels, most)


def _few_or_many(function, labels, many):
    """Applies a function to the positives, where only running tells whether they are few."""
    ids, relevance = _most_relevant(labels, FEW)
    return tf.cond(
        tf.reduce_all(labels.num_positives <= FEW),
        lambda: function(ids, relevance),
        lambda: function(*many()),
    )


def _most_relevant(labels, columns):
    """The positives `[batch, columns]`, padded with -1, and their relevance, 0 where padded."""
    ids, relevance = labels.class_ids, labels.relevance
    width = relevance.shape[1]
    if isinstance(columns, int) and width == columns:
        return labels.positives, relevance
    if width is None:
        missing = [[0, 0], [0, tf.maximum(columns - tf.shape(relevance)[1], 0)]]
        relevance = tf.pad(relevance, missing)
        ids = ids if ids is None else tf.pad(ids, missing)
    relevance, places = top.top_k(relevance, columns)
    ids = places if ids is None else tf.gather(ids, places, batch_dims=1)
    return tf.where(relevance > 0, ids, -1), relevance


def _compact(labels):
    """As `_most_relevant`, with as many columns as the batch has positives at most, in their order.

    Where XLA compiles, which needs a static width, there are as many columns as there may be.
    """
    positive = labels.relevance > 0
    place = tf.cumsum(tf.cast(positive, tf.int32), axis=-1) - 1
    # A column without a positive adds nothing, to the first place.
    column = tf.where(positive, tf.range(1, tf.shape(positive)[1] + 1), 0)
    column = scatter_add(tf.maximum(place, 0), column, tf.shape(positive))
    width = labels.max_positives if raising.in_xla() else tf.reduce_max(labels.num_positives)
    column = column[:, :width] - 1
    padding = column < 0
    column = tf.maximum(column, 0)
    ids = column
    if labels.class_ids is not None:
        ids = tf.gather(labels.class_ids, column, batch_dims=1)
    relevance = tf.gather(labels.relevance, column, batch_dims=1)
    relevance = tf.where(padding, tf.zeros_like(relevance), relevance)
    return tf.where(padding, -1, ids), relevance
