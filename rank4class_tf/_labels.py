"""The label forms that losses and metrics accept, brought to one form."""

from typing import NamedTuple

import tensorflow as tf

from rank4class_tf.ops import _pairs, _top
from rank4class_tf.ops._gather import flat_places, indices, scatter_add
from rank4class_tf.ops._where import where

_FORMATS = ("ids", "relevance", None)

# Up to this many ids of a list, sorting costs less than a pass over the items.
_QUICKLY_SORTED = 64


class Lists(NamedTuple):
    """A batch of lists of scored items with their positives.

    Attributes:
        scores: `[batch, n]`, float32 or float64.
        present: `[batch, n]` booleans, False for an item that is not there; None if all are there.
        class_ids: `[batch, P]` int32, the items with a positive label, padded with -1 anywhere;
            None where `relevance` is that of all items.
        relevance: `[batch, P]`, the label of each, 0 where padded; or `[batch, n]`, of which the
            labels above 0 are positive.
        invalid: `[batch]` booleans, True where the labels break the rules. Only in graph mode; in
            eager mode such labels raise.
        max_positives: the most positives that a list of relevance labels may have, an int, or None.
    """

    scores: tf.Tensor
    present: tf.Tensor | None
    class_ids: tf.Tensor | None
    relevance: tf.Tensor
    invalid: tf.Tensor
    max_positives: int | None = None

    @property
    def most_positives(self):
        """The most positives that a list can have, an int; None if only running tells."""
        bounds = [self.relevance.shape[1], self.max_positives]
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def surely_few(self):
        """Whether no list can have more than a few positives."""
        return self.most_positives is not None and self.most_positives <= _pairs.FEW

    @property
    def num_positives(self):
        """`[batch]` int32."""
        return tf.reduce_sum(tf.cast(self.relevance > 0, tf.int32), axis=-1)

    @property
    def has_positive(self):
        """`[batch]` booleans."""
        if self.class_ids is None:
            return self.num_positives > 0
        return tf.reduce_any(self.class_ids >= 0, axis=-1)

    @property
    def positives(self):
        """The class ids; where `relevance` is that of all items, item i in column i, or -1."""
        if self.class_ids is not None:
            return self.class_ids
        return tf.where(self.relevance > 0, tf.range(tf.shape(self.relevance)[1]), -1)


def check_label_format(label_format):
    """Raises unless `label_format` is one of the three known values."""
    if label_format not in _FORMATS:
        raise ValueError(f"`label_format` must be one of {_FORMATS}. Received: {label_format!r}.")


def parse(y_true, y_pred, label_format=None, max_positives=None, exclude=None):
    """Brings labels and scores of any accepted form to `Lists`.

    Args:
        y_true: class ids `[batch]`, `[batch, 1]`, `[batch, P]` padded with -1 or ragged; or
            relevance `[batch, n]`, where a negative entry marks an item that is not there.
        y_pred: scores `[batch, n]`.
        label_format: `"ids"`, `"relevance"`, or None to tell them apart by their static shapes.
        max_positives: the most positives a list of relevance labels may have, which is checked;
            None means n.
        exclude: items that are not there either: ids `[batch, E]` padded with -1 or ragged, or
            booleans `[batch, n]`, True for such an item.
    """
    scores = tf.convert_to_tensor(y_pred)
    if scores.shape.rank is not None and scores.shape.rank != 2:
        raise ValueError(f"`y_pred` must have the shape [batch, n]. Received: {scores.shape}.")
    scores = tf.cast(scores, tf.float64 if scores.dtype == tf.float64 else tf.float32)

    if isinstance(y_true, tf.RaggedTensor):
        if label_format == "relevance":
            raise ValueError("`y_true` must be dense with label_format='relevance', not ragged.")
        y_true, label_format = _dense(y_true), "ids"
    else:
        y_true = tf.convert_to_tensor(y_true)
    label_format = label_format or _infer_format(y_true, scores.shape)

    if label_format == "ids":
        lists = _from_ids(y_true, scores)
    else:
        lists = _from_relevance(y_true, scores, max_positives)
    return lists if exclude is None else _without(lists, exclude)


def over_positives(function, lists, compact=True):
    """Applies a function to as few columns as hold all positives of a batch.

    Labels of n items, most of them 0, then take some passes more than the ids of the others.

    Args:
        function: of class ids `[batch, P]`, padded with -1, and relevance `[batch, P]`; the shape
            of its result does not depend on P.
        lists: `Lists`.
        compact: whether positives that are many are to stand on the left, which takes time and
            saves it where each takes a pass over the items.

    Returns:
        The result of the function.
    """
    if lists.surely_few:
        return function(*_most_relevant(lists, lists.most_positives))
    return tf.cond(
        tf.reduce_all(lists.num_positives <= _pairs.FEW),
        lambda: function(*_most_relevant(lists, _pairs.FEW)),
        lambda: function(*(_compact if compact else _in_place)(lists)),
    )


def padded_ids(class_ids, num_classes, argument="y_true"):
    """Brings class ids of any form to `[batch, P]` int32, padded with -1.

    Returns:
        The ids, and `[batch]` booleans, True where they break the rules. Only in graph mode; in
        eager mode such ids raise.
    """
    ids = _dense(class_ids)
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
    batch = tf.convert_to_tensor(y_pred).shape[:1]
    if weights.shape.rank and not weights.shape[:1].is_compatible_with(batch):
        raise ValueError(
            "`sample_weight` must have a weight for each example. "
            f"Received: shape {weights.shape} for a batch of {batch[0]}."
        )
    if weights.shape.rank < 2:
        return weights
    if weights.shape[1] == 1:
        return tf.squeeze(weights, axis=1)
    lists = parse(y_true, y_pred, label_format, exclude=exclude)
    if not weights.shape.is_compatible_with(lists.scores.shape):
        raise ValueError(
            "`sample_weight` of items must have the shape of `y_pred`. "
            f"Received: {weights.shape} and {lists.scores.shape}."
        )
    weights = tf.cast(weights, lists.scores.dtype)
    if lists.class_ids is not None:
        weights = tf.gather(weights, tf.maximum(lists.class_ids, 0), batch_dims=1)
    relevance = tf.nn.relu(lists.relevance)
    total = tf.reduce_sum(relevance, axis=-1)
    # An item that counts for nothing may weigh anything.
    weighted = tf.math.multiply_no_nan(weights, relevance)
    return tf.math.divide_no_nan(tf.reduce_sum(weighted, axis=-1), total)


def _infer_format(labels, scores_shape):
    labels_shape = labels.shape
    if labels_shape.rank == 1:
        return "ids"
    if labels_shape.rank == 2:
        width, n = labels_shape[1], scores_shape[1]
        if width is not None and n is not None:
            if width == n > 1:
                return "relevance"
            # Several floating labels are rather those of all items, of another number by mistake.
            if width == 1 or not labels.dtype.is_floating:
                return "ids"
        elif width == 1:
            return "ids"
    raise ValueError(
        "`label_format` must be 'ids' or 'relevance' where static shapes and integer labels do not "
        f"tell the two apart. Received: label_format=None, y_true of dtype {labels.dtype.name} and "
        f"shape {labels_shape}, y_pred of shape {scores_shape}."
    )


def _from_ids(ids, scores):
    _check_same_batch(ids, scores)
    ids, invalid = padded_ids(ids, scores.shape[1] or tf.shape(scores)[1])
    ids = _distinct_among(ids, tf.shape(scores))
    relevance = tf.cast(ids >= 0, scores.dtype)
    return Lists(scores, None, ids, relevance, invalid)


def _distinct_among(ids, shape):
    """As `distinct_ids`; many ids are told apart by their places `[batch, n]`, not by sorting."""
    if ids.shape[1] is not None and ids.shape[1] <= _QUICKLY_SORTED:
        return distinct_ids(ids)
    column = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
    place, size = flat_places(ids, shape)
    place = tf.where(ids < 0, tf.cast(-1, tf.int64), place)  # Which is left out.
    first = tf.math.unsorted_segment_min(column, place, size)
    # Of `==` the rank is not known where the shape is not.
    is_first = tf.equal(tf.gather(tf.reshape(first, [-1]), tf.maximum(place, 0)), column)
    return tf.where(is_first, ids, -1)


def _from_relevance(labels, scores, max_positives):
    if labels.shape.rank != 2 or not labels.shape[1:].is_compatible_with(scores.shape[1:]):
        raise ValueError(
            "`y_true` must hold relevance of the shape of `y_pred`. "
            f"Received: {labels.shape} and {scores.shape}."
        )
    _check_same_batch(labels, scores)
    labels = tf.cast(labels, scores.dtype)
    rule = "`y_true` must hold finite relevance, negative for an item that is not there"
    invalid = _check(~tf.math.is_finite(labels), labels, rule)
    if max_positives is not None:
        count = tf.reduce_sum(tf.cast(labels > 0, tf.int32), axis=-1, keepdims=True)
        rule = f"`y_true` must hold at most max_positives={max_positives} positive labels a list"
        invalid |= _check(count > max_positives, count, rule)
    labels = where(~invalid, labels, 0)
    return Lists(scores, labels >= 0, None, labels, invalid, max_positives)


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
    exclude = _dense(exclude, keep=tf.bool)
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
    ids, gone = lists.class_ids, mask
    if ids is not None:
        gone = tf.gather(mask, tf.maximum(ids, 0), batch_dims=1)
        ids = tf.where(gone, -1, ids)
    return lists._replace(
        present=~mask if lists.present is None else lists.present & ~mask,
        class_ids=ids,
        relevance=tf.where(gone, tf.zeros_like(lists.relevance), lists.relevance),
        invalid=lists.invalid | invalid,
    )


def _most_relevant(lists, columns):
    """The positives `[batch, columns]`, padded with -1, and their relevance, 0 where padded."""
    ids, relevance = lists.class_ids, lists.relevance
    width = relevance.shape[1]
    if width == columns:
        return _in_place(lists)
    if width is None:
        missing = [[0, 0], [0, tf.maximum(columns - tf.shape(relevance)[1], 0)]]
        relevance = tf.pad(relevance, missing)
        ids = ids if ids is None else tf.pad(ids, missing)
    relevance, places = _top.top_k(relevance, columns)
    ids = places if ids is None else tf.gather(ids, places, batch_dims=1)
    return tf.where(relevance > 0, ids, -1), tf.nn.relu(relevance)


def _in_place(lists):
    """As `_most_relevant`, with all columns as they are."""
    if lists.class_ids is not None:
        return lists.class_ids, lists.relevance
    return lists.positives, tf.nn.relu(lists.relevance)


def _compact(lists):
    """As `_most_relevant`, with as many columns as there may be positives, in their order."""
    positive = lists.relevance > 0
    place = tf.cumsum(tf.cast(positive, tf.int32), axis=-1) - 1
    # What is no positive adds nothing, to the first place.
    column = tf.where(positive, tf.range(1, tf.shape(positive)[1] + 1), 0)
    column = scatter_add(tf.maximum(place, 0), column, tf.shape(positive))
    column = column[:, : lists.max_positives] - 1
    padding = column < 0
    column = tf.maximum(column, 0)
    ids = column
    if lists.class_ids is not None:
        ids = tf.gather(lists.class_ids, column, batch_dims=1)
    relevance = tf.gather(lists.relevance, column, batch_dims=1)
    relevance = tf.where(padding, tf.zeros_like(relevance), relevance)
    return tf.where(padding, -1, ids), relevance


def _dense(ids, keep=None):
    """Ids, padded with -1 if ragged, as integers that hold -1 and any number of classes.

    Args:
        ids: a tensor of any kind; one of floating numbers stays such.
        keep: a dtype that stays as it is too.
    """
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.convert_to_tensor(ids)
    if ids.dtype == tf.string:
        raise ValueError("Labels and ids must be numbers. Received: strings.")
    if not (ids.dtype.is_floating or ids.dtype in (tf.int32, tf.int64, keep)):
        ids = tf.cast(ids, tf.int64)
    return ids.to_tensor(default_value=-1) if isinstance(ids, tf.RaggedTensor) else ids


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
