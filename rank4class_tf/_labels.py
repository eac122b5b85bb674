"""The label forms that losses and metrics accept, brought to one form."""

from typing import NamedTuple

import tensorflow as tf

from rank4class_tf.ops._gather import indices
from rank4class_tf.ops._where import where

_FORMATS = ("ids", "relevance", None)


class Lists(NamedTuple):
    """A batch of lists of scored items with their positives.

    Attributes:
        scores: `[batch, n]`, float32 or float64.
        present: `[batch, n]` booleans, False for an item that is not there; None if all are there.
        class_ids: `[batch, P]` int32, the items with a positive label, padded with -1.
        relevance: `[batch, P]`, the label of each, 0 where padded.
        invalid: `[batch]` booleans, True where the labels break the rules. Only in graph mode; in
            eager mode such labels raise.
    """

    scores: tf.Tensor
    present: tf.Tensor | None
    class_ids: tf.Tensor
    relevance: tf.Tensor
    invalid: tf.Tensor

    @property
    def has_positive(self):
        """`[batch]` booleans."""
        return tf.reduce_any(self.class_ids >= 0, axis=-1)


def check_label_format(label_format):
    """Raises unless `label_format` is one of the three known values."""
    if label_format not in _FORMATS:
        raise ValueError(f"`label_format` must be one of {_FORMATS}. Received: {label_format!r}.")


def parse(y_true, y_pred, label_format=None, max_positives=None, exclude=None, compact=True):
    """Brings labels and scores of any accepted form to `Lists`.

    Args:
        y_true: class ids `[batch]`, `[batch, 1]`, `[batch, P]` padded with -1 or ragged; or
            relevance `[batch, n]`, where a negative entry marks an item that is not there.
        y_pred: scores `[batch, n]`.
        label_format: `"ids"`, `"relevance"`, or None to tell them apart by their static shapes.
        max_positives: the most positives a list of relevance labels has; None means n.
        exclude: items that are not there either: ids `[batch, E]` padded with -1 or ragged, or
            booleans `[batch, n]`, True for such an item.
        compact: whether to move the positives of relevance labels to the left, which takes time.
            Otherwise item i stands in column i, padded or not.
    """
    scores = tf.convert_to_tensor(y_pred)
    if scores.shape.rank is not None and scores.shape.rank != 2:
        raise ValueError(f"`y_pred` must have the shape [batch, n]. Received: {scores.shape}.")
    scores = tf.cast(scores, tf.float64 if scores.dtype == tf.float64 else tf.float32)

    if isinstance(y_true, tf.RaggedTensor):
        if label_format == "relevance":
            raise ValueError("`y_true` must be dense with label_format='relevance', not ragged.")
        y_true, label_format = y_true.to_tensor(default_value=-1), "ids"
    else:
        y_true = tf.convert_to_tensor(y_true)
    label_format = label_format or _infer_format(y_true.shape, scores.shape)

    if label_format == "ids":
        lists = _from_ids(y_true, scores)
    else:
        lists = _from_relevance(y_true, scores, max_positives, compact)
    return lists if exclude is None else _without(lists, exclude)


def padded_ids(class_ids, num_classes, argument="y_true"):
    """Brings class ids of any form to `[batch, P]` int32, padded with -1.

    Returns:
        The ids, and `[batch]` booleans, True where they break the rules. Only in graph mode; in
        eager mode such ids raise.
    """
    if isinstance(class_ids, tf.RaggedTensor):
        class_ids = class_ids.to_tensor(default_value=-1)
    ids = tf.convert_to_tensor(class_ids)
    if ids.shape.rank == 1:
        ids = ids[:, tf.newaxis]
    if ids.shape.rank != 2:
        raise ValueError(
            f"`{argument}` must hold class ids of shape [batch], [batch, 1] or [batch, P]. "
            f"Received: {ids.shape}."
        )
    if not ids.shape[1]:  # At least one column, where there may be none.
        missing = tf.cast(tf.shape(ids)[1] == 0, tf.int32)
        ids = tf.pad(ids, [[0, 0], [0, missing]], constant_values=tf.cast(-1, ids.dtype))
    bad = (ids < -1) | (ids >= tf.cast(num_classes, ids.dtype))
    if ids.dtype.is_floating:
        bad |= ids != tf.floor(ids)
    rule = f"`{argument}` must hold class ids in [0, {num_classes}), or -1 for padding"
    invalid = _check(bad, ids, rule)
    return tf.cast(where(~bad, ids, -1), tf.int32), invalid


def distinct_ids(ids):
    """Class ids `[batch, P]` with each id once, padded with -1, in another order."""
    if ids.shape[1] == 1:
        return ids
    ids = tf.sort(ids, axis=-1, direction="DESCENDING")
    first = tf.ones_like(ids[:, :1], tf.bool)
    return tf.where(tf.concat([first, ids[:, 1:] != ids[:, :-1]], axis=1), ids, -1)


def list_weights(sample_weight, y_true, y_pred, label_format=None, exclude=None):
    """Brings sample weights of any accepted form to a scalar or `[batch]`.

    Weights per item `[batch, n]` become weights per list as in TF-Ranking:
    `sum_i w_i y_i / sum_i y_i`, 0 for a list without positives.
    """
    weights = tf.convert_to_tensor(sample_weight)
    if weights.shape.rank is None or weights.shape.rank > 2:
        raise ValueError(
            "`sample_weight` must be a scalar or have the shape [batch], [batch, 1] or "
            f"[batch, n]. Received: {weights.shape}."
        )
    if weights.shape.rank < 2:
        return weights
    if weights.shape[1] == 1:
        return tf.squeeze(weights, axis=1)
    lists = parse(y_true, y_pred, label_format, exclude=exclude)
    lists.scores.shape.assert_is_compatible_with(weights.shape)
    weights = tf.gather(
        tf.cast(weights, lists.scores.dtype), tf.maximum(lists.class_ids, 0), batch_dims=1
    )
    total = tf.reduce_sum(lists.relevance, axis=-1)
    return tf.math.divide_no_nan(tf.reduce_sum(weights * lists.relevance, axis=-1), total)


def _infer_format(labels_shape, scores_shape):
    if labels_shape.rank == 1:
        return "ids"
    if labels_shape.rank == 2:
        width, n = labels_shape[1], scores_shape[1]
        if width is not None and n is not None:
            return "relevance" if width == n and n > 1 else "ids"
        if width == 1:
            return "ids"
    raise ValueError(
        "`label_format` must be 'ids' or 'relevance' where the static shapes do not tell the two "
        f"apart. Received: label_format=None, y_true of shape {labels_shape}, y_pred of shape "
        f"{scores_shape}."
    )


def _from_ids(ids, scores):
    _check_same_batch(ids, scores)
    ids, invalid = padded_ids(ids, scores.shape[1] or tf.shape(scores)[1])
    ids = distinct_ids(ids)
    relevance = tf.cast(ids >= 0, scores.dtype)
    return Lists(scores, None, ids, relevance, invalid)


def _from_relevance(labels, scores, max_positives, compact):
    if labels.shape.rank != 2 or not labels.shape[1:].is_compatible_with(scores.shape[1:]):
        raise ValueError(
            "`y_true` must hold relevance of the shape of `y_pred`. "
            f"Received: {labels.shape} and {scores.shape}."
        )
    _check_same_batch(labels, scores)
    labels = tf.cast(labels, scores.dtype)
    rule = "`y_true` must hold finite relevance, negative for an item that is not there"
    bad = ~tf.math.is_finite(labels)
    invalid = _check(bad, labels, rule)
    labels = tf.where(bad, tf.zeros_like(labels), labels)

    positive = labels > 0
    if not compact:
        class_ids = tf.where(positive, tf.range(tf.shape(labels)[1]), -1)
        return Lists(scores, labels >= 0, class_ids, tf.maximum(labels, 0), invalid)
    position = tf.cumsum(tf.cast(positive, tf.int32), axis=-1)
    limit = tf.shape(labels)[1] if max_positives is None else max_positives
    if max_positives is not None:
        count = position[:, -1:]
        rule = f"`y_true` must hold at most max_positives={max_positives} positive labels a list"
        invalid |= _check(count > max_positives, count, rule)
    class_ids = _compact(positive, position, limit)
    relevance = tf.gather(labels, tf.maximum(class_ids, 0), batch_dims=1)
    relevance = tf.where(class_ids >= 0, relevance, tf.zeros_like(relevance))
    if max_positives is None:
        class_ids.set_shape(scores.shape)
        relevance.set_shape(scores.shape)
    return Lists(scores, labels >= 0, class_ids, relevance, invalid)


def excluded_items(exclude, scores_shape):
    """Brings the items to leave out to a mask.

    Args:
        exclude: ids `[batch, E]` padded with -1 or ragged, or booleans `[batch, n]`, True for an
            item to leave out.
        scores_shape: `[batch, n]`, a tensor.

    Returns:
        Booleans `[batch, n]`, and `[batch]` booleans, True where ids break the rules. Only in graph
        mode; in eager mode such ids raise.
    """
    if isinstance(exclude, tf.RaggedTensor):
        exclude = exclude.to_tensor(default_value=-1)
    exclude = tf.convert_to_tensor(exclude)
    rule = "`exclude` must hold item ids [batch, E], -1 for padding, or booleans [batch, n]"
    if exclude.shape.rank != 2 or not (exclude.dtype.is_integer or exclude.dtype.is_bool):
        raise ValueError(f"{rule}. Received: {exclude.dtype.name} of shape {exclude.shape}.")
    if exclude.dtype.is_bool:
        return exclude, tf.zeros(tf.shape(exclude)[:1], tf.bool)
    batch, n = tf.unstack(scores_shape)
    bad = (exclude < -1) | (exclude >= tf.cast(n, exclude.dtype))
    invalid = _check(bad, exclude, rule)
    # Padding goes to a column of its own, which is cut off.
    column = tf.where(bad | (exclude < 0), n, tf.cast(exclude, tf.int32))
    mask = tf.scatter_nd(indices(column), tf.ones_like(column), [batch, n + 1])[:, :n] > 0
    return mask, invalid


def _without(lists, exclude):
    """The lists without the items that `exclude` names."""
    mask, invalid = excluded_items(exclude, tf.shape(lists.scores))
    there = ~tf.gather(mask, tf.maximum(lists.class_ids, 0), batch_dims=1)
    return lists._replace(
        present=~mask if lists.present is None else lists.present & ~mask,
        class_ids=tf.where(there, lists.class_ids, -1),
        relevance=tf.where(there, lists.relevance, tf.zeros_like(lists.relevance)),
        invalid=lists.invalid | invalid,
    )


def _compact(positive, position, limit):
    """The columns where `positive`, moved to the left of `[batch, limit]`, then -1."""
    batch, n = tf.unstack(tf.shape(positive))
    column = tf.where(positive & (position <= limit), position - 1, limit)
    item = tf.broadcast_to(tf.range(n), [batch, n])
    empty = tf.fill([batch, limit + 1], -1)
    return tf.tensor_scatter_nd_update(empty, indices(column), item)[:, :-1]


def _check_same_batch(labels, scores):
    if not labels.shape[:1].is_compatible_with(scores.shape[:1]):
        raise ValueError(
            "`y_true` and `y_pred` must have the same batch size. "
            f"Received: shapes {labels.shape} and {scores.shape}."
        )


def _check(bad, values, rule):
    """Raises in eager mode if any of `bad`; returns which rows are bad."""
    if tf.executing_eagerly() and bool(tf.reduce_any(bad)):
        raise ValueError(f"{rule}. Received: {values[bad][0].numpy()!r}.")
    return tf.reduce_any(bad, axis=-1)
