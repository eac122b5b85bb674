"""Lists of scores with their positives, in the form that the layers of negatives take."""

from typing import Any

import tensorflow as tf

from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf.dtypes import as_floating
from rank4class_tf._tf.raising import same_sizes


def scores_and_columns(
    scores: Any, labels: Any
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Brings both to one form.

    Args:
        scores: `[batch, n]`; integers become float32.
        labels: `[batch]` or `[batch, P]`, the columns of the positives, padded with -1.

    Returns:
        The scores; the columns `[batch, P]`, int32, with another one of the list, or 0, in place of
        padding; booleans `[batch, P]`, False for padding; and zeros `[batch, 1]` in the dtype of
        the scores, NaN where a label is a column that does not exist.
    """
    scores = as_floating(scores)
    labels = tf.convert_to_tensor(labels)
    if scores.shape.rank != 2:
        raise ValueError(f"`scores` must have the shape [batch, n]. Received: {scores.shape}.")
    if labels.shape.rank not in (1, 2):
        raise ValueError(
            "`labels` must hold the columns of the positives of each list, [batch] or [batch, P]. "
            f"Received: {labels.shape}."
        )
    num_columns = scores.shape[1] or tf.shape(scores)[1]
    columns, invalid = _labels.padded_ids(labels, num_columns, scores, "labels")
    nan = tf.constant(float("nan"), scores.dtype)
    zero = tf.where(invalid[:, tf.newaxis], nan, tf.zeros_like(nan))
    there = columns >= 0
    some = columns if columns.shape[1] == 1 else tf.reduce_max(columns, axis=1, keepdims=True)
    return scores, tf.where(there, columns, tf.maximum(some, 0)), there, zero


def of_columns(name: str, values: Any, scores: tf.Tensor) -> tf.Tensor:
    """Values of the columns of scores, `[n]` or `[batch, n]`, after a check of their shape."""
    values = tf.convert_to_tensor(values)
    rank = values.shape.rank
    rule = f"`{name}` must have the shape [n] or [batch, n] of `scores`."
    if rank not in (1, 2):
        raise ValueError(f"{rule} Received: {values.shape} for scores {scores.shape}.")
    lists = scores if rank == 2 else tf.zeros(tf.shape(scores)[1:])
    return same_sizes(values, lists, rule, axes=rank)
