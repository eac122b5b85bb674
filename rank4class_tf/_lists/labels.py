"""The label forms that losses and metrics accept, checked and brought to one form.

A list that breaks a rule raises an error. XLA cannot raise: there the list becomes NaN,
in `lists`, which the caller passes (`padded_ids`, `excluded_items`), or in
`Labels.value_if_empty`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _keras
from rank4class_tf._checks import require
from rank4class_tf._tf.exact import as_dtype
from rank4class_tf._tf.gather import indices
from rank4class_tf._tf.raising import (
    check,
    check_rows,
    checked,
    in_xla,
    replaced,
    same_sizes,
)
from rank4class_tf._tf.shapes import num_rows
from rank4class_tf._types import Array, Size, Tensor, TensorPair

_FORMATS = ("ids", "relevance", None)

# What to do where an example has one score.
WAYS_WITH_ONE_SCORE = (
    "for labels 0 and 1, take two scores, as of `Dense(2)`, and class ids; or "
    "`SigmoidCrossEntropyLoss` and floating labels [batch, 1]; see `Two classes` in "
    "docs/recipes.md"
)

# The sum of a list of smaller numbers is finite in float32.
_HUGE = 1e28

# Floating dtypes hold every integer up to these.
_MAX_EXACT = {tf.bfloat16: 2**8, tf.float16: 2**11, tf.float32: 2**24}

_NON_NUMERIC = (tf.string, tf.complex64, tf.complex128)


class Labels(NamedTuple):
    """Scores and labels of a batch, brought to one form."""

    scores: Tensor  # `[batch, n]`, float32 or float64.
    # `[batch, n]` booleans, False for a masked item; None if none is masked.
    mask: Tensor | None
    # The items with a positive label, `[batch, P]` int32, padded with -1 anywhere. None
    # where the relevance is that of all items, `[batch, n]`, 0 for one that is not
    # positive.
    class_ids: Tensor | None
    relevance: Tensor  # `[batch, P]`, the label of each, 0 where padded.
    # What a list without positives counts as, `[batch]`: 0, or NaN if XLA compiles
    # labels that break the rules. Such a list has no positives.
    value_if_empty: Tensor
    # The most that a list can have; None if not static.
    max_positives: int | None = None
    # `[batch]`, the highest relevance, if it takes no further pass.
    highest: Tensor | None = None
    # `[batch, n]`, 0 for a masked item; None means 1.
    item_weights: Tensor | None = None
    # `[batch]` booleans, True where all that was given is padding; None if not asked.
    is_padding: Tensor | None = None

    @property
    def num_positives(self) -> Tensor:
        """`[batch]` int32."""
        return tf.reduce_sum(tf.cast(self.relevance > 0, tf.int32), axis=-1)

    @property
    def has_positive(self) -> Tensor:
        """`[batch]` booleans."""
        if self.highest is not None:
            return self.highest > 0
        if self.class_ids is None:
            any_positive = tf.reduce_any(self.relevance > 0, axis=-1)
            return any_positive & tf.equal(self.value_if_empty, 0)
        return tf.reduce_any(self.class_ids >= 0, axis=-1)

    @property
    def positives(self) -> Tensor:
        """Ids of positives; for relevance, column i holds i if positive, else -1."""
        if self.class_ids is not None:
            return self.class_ids
        return tf.where(self.relevance > 0, tf.range(tf.shape(self.relevance)[1]), -1)


def check_label_format(label_format: str | None) -> None:
    """Raises unless `label_format` is one of the three known values."""
    rule = f"`label_format` must be one of {_FORMATS}."
    require(label_format in _FORMATS, rule, repr(label_format))


def checked_ignore_class(ignore_class: Any, label_format: str | None) -> int | None:
    """The id as an int; raises unless it is an integer, and labels may be ids."""
    if ignore_class is None:
        return None
    rule = "`ignore_class` must be None or an integer."
    is_integer = isinstance(ignore_class, int | np.integer)
    require(is_integer and not isinstance(ignore_class, bool), rule, ignore_class)
    rule = "`ignore_class` must be None with label_format='relevance'."
    require(label_format != "relevance", rule, ignore_class)
    return int(ignore_class)


def parse(
    y_true: Array,
    y_pred: Tensor | tf.RaggedTensor,
    exclude: Array | None = None,
    *,
    label_format: str | None = None,
    max_positives: int | None = None,
    num_classes: int | None = None,
    ignore_class: int | None = None,
    finds_padding: bool = False,
) -> Labels:
    """Brings labels and scores of any accepted form to `Labels`.

    Labels are class ids `[batch]`, `[batch, 1]`, `[batch, P]` padded with -1 or ragged;
    or relevance `[batch, n]`, where a negative entry masks the item, ragged if the
    scores are. A list of relevance may have `max_positives`; None means n.

    With `num_classes`, there are encodings `[batch, d]` in place of scores, which are
    never computed, and the labels must be class ids. So they must with `ignore_class`,
    an id that is padding, as -1 is.
    """
    scores = y_pred
    mask = None
    width = num_classes
    if num_classes is None:
        mask = _keras.mask_of_items(y_pred)
        is_sparse = isinstance(y_pred, tf.SparseTensor)
        require(not is_sparse, "`y_pred` must be dense or ragged.", "a SparseTensor")
        if isinstance(y_pred, tf.RaggedTensor):
            y_true, y_pred = _without_ragged(y_true, y_pred, label_format)
            label_format = "relevance"
        scores = _with_items(as_scores("y_pred", y_pred))
        width = scores.shape[1]

    # Whether labels are ids or relevance is decided here, once.
    inferred = label_format is None and not isinstance(y_true, tf.RaggedTensor)
    shape = tf.TensorShape([scores.shape[0], width])
    y_true, is_ids = _with_format(y_true, shape, label_format)
    if num_classes is not None:
        rule = "`y_true` must hold class ids, not a label for each class."
        received = f"{y_true.dtype.name} of shape {y_true.shape} for {num_classes}"
        require(is_ids, rule, f"{received} classes, label_format={label_format!r}")
    if ignore_class is not None:
        rule = (
            "`ignore_class` needs class ids, but `y_true` has a label for each item. "
            "Ids as wide as the scores need label_format='ids'."
        )
        require(is_ids, rule, f"ignore_class={ignore_class}, shape {y_true.shape}")
        y_true = without_class(y_true, ignore_class)
    if is_ids:
        labels = _of_ids(scores, y_true, inferred, num_classes)
    else:
        labels = _of_relevance(scores, y_true, max_positives)

    if finds_padding:
        # A list that breaks a rule is none, so that its NaN shows.
        known: Tensor = labels.positives >= 0 if is_ids else labels.mask
        is_right = tf.equal(labels.value_if_empty, 0)
        is_padding = is_right & ~tf.reduce_any(known, axis=-1)
        labels = labels._replace(is_padding=is_padding)
    if mask is not None:
        labels = without(labels, ~mask)
    return labels if exclude is None else without(labels, exclude)


def _with_items(scores: Tensor) -> Tensor:
    """The scores; raises unless each list has at least one."""
    if scores.shape[1]:
        return scores
    # Their number is 0, or known only at run time.
    rule = "`y_pred` must score at least one item"
    require(scores.shape[1] != 0, f"{rule}.", f"shape {scores.shape}")
    width = tf.shape(scores)[1]
    is_checked = tf.debugging.assert_positive(width, f"{rule}. Received: none")
    with tf.control_dependencies([is_checked]):  # This error must come first.
        return tf.identity(scores)


def _without_ragged(
    relevance: Tensor, scores: tf.RaggedTensor, label_format: str | None
) -> TensorPair:
    """Ragged relevance and scores as dense ones, in which missing items are masked."""
    rule = (
        "`y_true` must hold ragged relevance, a label for each score, where "
        "`y_pred` is ragged."
    )
    fits = isinstance(relevance, tf.RaggedTensor) and label_format != "ids"
    require(fits, rule, f"a {type(relevance).__name__}, label_format={label_format!r}")
    fits = scores.shape.rank == relevance.shape.rank == 2
    require(fits, rule, f"shapes {relevance.shape} and {scores.shape}")
    # Row lengths may be int32, as those of `parse_example`.
    num_scores = tf.cast(scores.row_lengths(), tf.int64)
    lengths = tf.cast(relevance.row_lengths(), tf.int64)[:, tf.newaxis]
    lengths = same_sizes(lengths, num_scores, rule)
    check(lengths != num_scores[:, tf.newaxis], lengths, rule.rstrip("."))
    dtype = tf.float64 if scores.dtype == tf.float64 else tf.float32
    return _items(tf.cast(relevance, dtype), -1), _items(scores, 0)


def _items(values: tf.RaggedTensor, filler: float) -> Tensor:
    """Ragged values of items as dense ones, with at least one column."""
    values = values.to_tensor(filler)
    missing = tf.cast(tf.equal(tf.shape(values)[1], 0), tf.int32)
    return tf.pad(
        values, [[0, 0], [0, missing]], constant_values=tf.cast(filler, values.dtype)
    )


# Which form labels have.


def _with_format(
    y_true: Array, shape: tf.TensorShape, label_format: str | None
) -> tuple[Tensor, bool]:
    """Labels as a tensor, and whether they are class ids, for scores of a shape."""
    is_sparse = isinstance(y_true, tf.SparseTensor)
    require(not is_sparse, "`y_true` must be dense.", "a SparseTensor")
    if isinstance(y_true, tf.RaggedTensor):
        rule = "`y_true` must be dense with label_format='relevance', not ragged."
        require(label_format != "relevance", rule, "a RaggedTensor")
        rule = "`y_true` must hold integers where it is ragged."
        require(not y_true.dtype.is_bool, rule, "bool")
        return dense_ids(y_true), True
    y_true = as_numbers("y_true", y_true)
    return y_true, are_ids(y_true, shape, label_format)


def are_ids(
    labels: Tensor, scores_shape: tf.TensorShape, label_format: str | None
) -> bool:
    """Whether labels are class ids, by static shape and dtype if the format is None."""
    if label_format is not None:
        return label_format == "ids"
    shape = labels.shape
    dtype = labels.dtype
    if shape.rank == 1:
        return True
    if shape.rank == 2:
        width, n = shape[1], scores_shape[1]
        if width is not None and width == n and n > 1:
            return False
        # Floating labels and booleans are meant as labels of all items: a wrong width
        # is a mistake.
        if width == n == 1 and dtype.is_floating:
            return False
        if width == 1 and not dtype.is_bool:
            return True
        require(
            None in (width, n) or dtype.is_integer,
            "`y_true` must have as many columns as `y_pred` if it holds a label for "
            "each item. "
            "For class ids [batch, P], use integers or label_format='ids'.",
            f"{dtype.name} labels of {width} items and scores of {n}",
        )
    # If the static shape of integers tells nothing, `_of_ids` checks them at run time.
    if dtype.is_integer and shape.rank in (None, 2):
        return True
    raise ValueError(
        "`label_format` must be 'ids' or 'relevance' if static shapes and dtypes do "
        "not distinguish the two. Received: label_format=None, y_true of dtype "
        f"{dtype.name} and shape {shape}, y_pred of shape {scores_shape}. (Keras "
        "forgets the shapes if it calls a model with labels of several ranks in "
        "turn.)"
    )


# Labels that are class ids.


def _of_ids(
    scores: Tensor, ids: Tensor, inferred: bool, num_classes: int | None = None
) -> Labels:
    """`Labels` of class ids; with `num_classes`, encodings are in place of scores."""
    static_items = num_classes or scores.shape[1]
    num_items = static_items or tf.shape(scores)[1]
    nan_or_0 = tf.zeros([num_rows(scores)], scores.dtype)

    may_be_relevance = False
    if inferred and ids.shape.rank != 1:
        ids = in_rows(ids)
        width = ids.shape[1]
        may_be_relevance = None in (width, static_items) or width > 2
    if may_be_relevance:
        nan_or_0 = _nan_if_as_wide(nan_or_0, ids, static_items, num_items)
        nan_or_0 = _nan_if_binary(nan_or_0, ids, static_items)

    ids, value_if_empty = padded_ids(ids, num_items, nan_or_0)
    if may_be_relevance:
        ids = replaced(ids, tf.math.is_nan(value_if_empty), -1)
    ids = distinct_ids(ids)
    return Labels(
        scores=scores,
        mask=None,
        class_ids=ids,
        relevance=tf.cast(ids >= 0, scores.dtype),
        value_if_empty=value_if_empty,
        max_positives=ids.shape[1],
    )


# Ids whose format is inferred must not look like labels of all items.


def _nan_if_as_wide(
    nan_or_0: Tensor, ids: Tensor, static_items: int | None, num_items: Size
) -> Tensor:
    """Raises, or is NaN under XLA, where ids turn out to be as wide as the scores."""
    if None not in (ids.shape[1], static_items):
        return nan_or_0  # `are_ids` compared them.
    as_wide = (tf.shape(ids)[1] == num_items) & (num_items > 1)
    rule = (
        "`label_format` must be 'ids' or 'relevance' for integer labels of a "
        "shape that is not known when the graph is made, and that are as wide "
        "as the scores"
    )
    return checked(nan_or_0, tf.fill(tf.shape(ids), as_wide), ids, rule)


def _nan_if_binary(nan_or_0: Tensor, ids: Tensor, static_items: int | None) -> Tensor:
    """Raises, or is NaN under XLA, for more than two ids that are all 0 or 1."""
    width = ids.shape[1]
    if width is not None and width <= 2:
        return nan_or_0
    rule = (
        "`y_true` must hold class ids or labels of all items; a list of "
        f"{width or 'more than two'} zeros and ones is neither, since `y_pred` "
        f"scores {static_items or 'another number of'} items"
    )
    is_binary = tf.equal(ids, 0) | tf.equal(ids, 1)
    is_binary &= tf.reduce_all(is_binary, axis=-1, keepdims=True)
    if width is None:
        is_binary &= tf.shape(ids)[1] > 2
    return checked(nan_or_0, is_binary, ids, rule)


def padded_ids(
    class_ids: Array, num_classes: int | Tensor, lists: Tensor, argument: str = "y_true"
) -> TensorPair:
    """Checks class ids of any form; makes them `[batch, P]` int32, padded with -1."""
    # It also returns `lists`, a floating tensor `[batch, ...]`, with NaN for a list
    # whose ids break the rules under XLA. Error messages call the ids `argument`.
    is_bool = getattr(class_ids, "dtype", None) in (tf.bool, bool)
    require(not is_bool, f"`{argument}` must hold class ids as integers.", "bool")
    ids = in_rows(dense_ids(class_ids))
    rule = (
        f"`{argument}` must hold class ids of shape [batch], [batch, 1] or [batch, P]."
    )
    require(ids.shape.rank == 2, rule, f"{ids.shape}")
    ids = same_sizes(ids, lists, f"`{argument}` must have a row for each list.")
    if not ids.shape[1]:  # Add a column if there is none.
        missing = tf.cast(tf.shape(ids)[1] == 0, tf.int32)
        ids = tf.pad(
            ids, [[0, 0], [0, missing]], constant_values=tf.cast(-1, ids.dtype)
        )
    known = tf.get_static_value(num_classes)
    is_invalid = (ids < -1) | (ids >= as_dtype(num_classes, ids.dtype))
    if ids.dtype.is_floating:
        is_invalid |= _is_inexact(ids, known, argument)
    bound = "the number of classes" if known is None else known
    rule = (
        f"`{argument}` must hold class ids in [0, {bound}), or -1 for padding, where "
        "PyTorch has -100"
    )
    if known == 1:
        rule = f"{rule} ({WAYS_WITH_ONE_SCORE})"
    is_broken = check(is_invalid, ids, rule)
    ids = replaced(ids, is_broken, -1)
    return tf.cast(ids, tf.int32), replaced(lists, is_broken, float("nan"))


def _is_inexact(ids: Tensor, num_classes: int | None, argument: str) -> Tensor:
    """Where floating ids are no integers, or may have been rounded to one."""
    is_inexact = ids != tf.floor(ids)
    max_exact = _MAX_EXACT.get(ids.dtype)
    if max_exact is None:
        return is_inexact
    if num_classes is None:
        return is_inexact | (ids >= max_exact)
    if num_classes > max_exact:
        raise ValueError(
            f"`{argument}` must hold class ids of an integer dtype if there are more "
            f"than {max_exact} classes. Received: {ids.dtype.name}, for {num_classes} "
            "classes. (Under mixed precision Keras 2 casts floating labels to the "
            "dtype of the scores.)"
        )
    return is_inexact


def in_rows(ids: Tensor) -> Tensor:
    """Ids `[batch]` as `[batch, 1]`; ids of unknown rank, 1 or 2, as `[batch, P]`."""
    if ids.shape.rank == 1:
        return tf.expand_dims(ids, 1)
    if ids.shape.rank is None:
        shape = tf.shape(ids)
        return tf.reshape(ids, [shape[0], tf.reduce_prod(shape[1:])])
    return ids


def distinct_ids(ids: Tensor) -> Tensor:
    """Class ids `[batch, P]` with each id once, padded with -1, in any order."""
    if ids.shape[1] == 1:
        return ids
    ids = tf.sort(ids, axis=-1, direction="DESCENDING")
    first = tf.ones_like(ids[:, :1], tf.bool)
    return tf.where(tf.concat([first, ids[:, 1:] != ids[:, :-1]], axis=1), ids, -1)


def dense_ids(ids: Array, keep: tf.DType | None = None) -> Tensor:
    """Ids, padded by -1 if ragged, as int32 or int64; floats and dtype `keep` stay."""
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.convert_to_tensor(ids)
    require(
        ids.dtype not in _NON_NUMERIC, "Labels and ids must be numbers.", ids.dtype.name
    )
    if not (ids.dtype.is_floating or ids.dtype in (tf.int32, tf.int64, keep)):
        ids = tf.cast(ids, tf.int64)
    return ids.to_tensor(default_value=-1) if isinstance(ids, tf.RaggedTensor) else ids


def without_class(ids: Array, ignore_class: int) -> Tensor:
    """Ids in which -1 stands for the class that is padding."""
    ids = tf.convert_to_tensor(ids) if not isinstance(ids, tf.RaggedTensor) else ids
    rule = "`y_true` must hold class ids as integers with `ignore_class`."
    is_id = ids.dtype.is_integer or ids.dtype.is_floating
    require(is_id, rule, f"{ids.dtype.name}, {ignore_class=}")
    ids = dense_ids(ids)
    if not ids.dtype.min <= ignore_class <= ids.dtype.max:
        return ids  # None is of this class; a cast would name another one.
    is_ignored = tf.equal(ids, tf.cast(ignore_class, ids.dtype))
    return tf.where(is_ignored, tf.cast(-1, ids.dtype), ids)


# Labels of all items.


def _of_relevance(scores: Tensor, labels: Tensor, max_positives: int | None) -> Labels:
    """`Labels` of relevance `[batch, n]`, with up to `max_positives` a list."""
    rule = "`y_true` must hold relevance of the shape of `y_pred`."
    require(labels.shape.rank == 2, rule, f"shapes {labels.shape} and {scores.shape}")
    labels = tf.cast(same_sizes(labels, scores, rule, num_axes=2), scores.dtype)
    # Under XLA such a sum takes a third of the time of a sum of comparisons.
    total = tf.reduce_sum(labels, axis=-1)
    rule = (
        "`y_true` must hold finite relevance, also in sum, negative for a masked item"
    )
    is_broken = check_rows(
        ~tf.math.is_finite(total),
        # The negation of `<` would catch a NaN, but TensorFlow rewrites it as `>=` in
        # graphs.
        lambda relevance: (tf.abs(relevance) >= _HUGE) | tf.math.is_nan(relevance),
        labels,
        rule,
    )
    # 0, or NaN for a list that breaks a rule under XLA.
    value = replaced(tf.zeros_like(total), is_broken, float("nan"))
    if max_positives is not None:
        count = tf.reduce_sum(tf.cast(labels > 0, tf.int32), axis=-1, keepdims=True)
        rule = (
            f"`y_true` must hold at most max_positives={max_positives} positive "
            "labels a list"
        )
        value = checked(value, count > max_positives, count, rule)
    if in_xla():  # A NaN would spoil the gradient of a formula.
        labels = tf.where(tf.equal(value, 0)[:, tf.newaxis], labels, 0)
    highest = tf.reduce_max(labels, axis=-1) + value
    bounds = [x for x in (labels.shape[1], max_positives) if x is not None]
    return Labels(
        scores=scores,
        mask=labels >= 0,
        class_ids=None,
        relevance=tf.nn.relu(labels),
        value_if_empty=value,
        max_positives=min(bounds, default=None),
        highest=highest,
    )


def as_scores(name: str, values: Array) -> Tensor:
    """Scores `[batch, n]` as float32 or float64.

    They are float64 if given as float64 or as integers of 32 bits or more.
    """
    # Float32 holds no integers beyond 2**24, such as times in seconds.
    scores = as_numbers(name, values)
    dtype = scores.dtype
    rule = f"`{name}` must hold numbers of the shape [batch, n]."
    received = f"{dtype.name} of shape {scores.shape}"
    require(scores.shape.rank in (None, 2), rule, received)
    is_wide = dtype == tf.float64 or dtype.is_integer and dtype.size > 2
    return tf.cast(scores, tf.float64 if is_wide else tf.float32)


def as_numbers(name: str, values: Array) -> Tensor:
    """A tensor; raises for strings, complex numbers and scoreless `ClassProducts`."""
    rule = f"`{name}` must hold scores: only a `RankingLoss` reads classes by blocks."
    require(not hasattr(values, "encodings"), rule, "`over_classes` of a head")
    values = tf.convert_to_tensor(values)
    require(
        values.dtype not in _NON_NUMERIC,
        f"`{name}` must be numbers.",
        values.dtype.name,
    )
    return values


# Items to leave out.


def excluded_items(exclude: Array, scores: Tensor, lists: Tensor) -> TensorPair:
    """The items to leave out, in any form `parse` takes, as booleans `[batch, n]`."""
    # Only the shape of the scores matters. `lists` are as in `padded_ids`.
    exclude = dense_ids(exclude, keep=tf.bool)
    rule = (
        "`exclude` must hold item ids [batch, E], -1 for padding, or booleans "
        "[batch, n]"
    )
    shape = (
        scores.shape if exclude.dtype.is_bool else scores.shape[:1].concatenate([None])
    )
    fits = exclude.shape.rank == 2 and exclude.shape.is_compatible_with(shape)
    require(
        fits and (exclude.dtype.is_integer or exclude.dtype.is_bool),
        f"{rule}.",
        (
            f"{exclude.dtype.name} of shape {exclude.shape} for scores of shape "
            f"{scores.shape}"
        ),
    )
    if exclude.dtype.is_bool:
        rule = "`exclude` must have the shape of the scores where it holds booleans."
        return same_sizes(exclude, scores, rule, num_axes=2), lists
    batch, n = tf.unstack(tf.shape(scores))
    exclude = same_sizes(exclude, scores, "`exclude` must have a row for each list.")
    is_invalid = (exclude < -1) | (exclude >= tf.cast(n, exclude.dtype))
    lists = checked(lists, is_invalid, exclude, rule)
    # Padding goes to an extra column, which is cut off.
    column = tf.where(is_invalid | (exclude < 0), n, tf.cast(exclude, tf.int32))
    counts = tf.scatter_nd(indices(column), tf.ones_like(column), [batch, n + 1])
    return counts[:, :n] > 0, lists


def without(labels: Labels, exclude: Array) -> Labels:
    """The labels, with the items in `exclude` masked."""
    excluded, value_if_empty = excluded_items(
        exclude, labels.scores, labels.value_if_empty
    )
    ids = labels.class_ids
    is_excluded = excluded
    if ids is not None:
        is_excluded = tf.gather(excluded, tf.maximum(ids, 0), batch_dims=1)
        is_excluded |= tf.math.is_nan(value_if_empty)[:, tf.newaxis]
        ids = tf.where(is_excluded, -1, ids)
    return labels._replace(
        mask=~excluded if labels.mask is None else labels.mask & ~excluded,
        class_ids=ids,
        relevance=tf.where(
            is_excluded, tf.zeros_like(labels.relevance), labels.relevance
        ),
        value_if_empty=value_if_empty,
        highest=None,
    )


# Weights.


def example_weights(
    sample_weight: Array, y_pred: Array, per_item: bool = False, signed: bool = True
) -> Tensor:
    """Scalar, `[batch]` or `[batch, 1]` weights as a floating scalar or `[batch]`."""
    # With `per_item`, weights `[batch, n]`, dense or ragged, are accepted too, and stay
    # so. With `signed`, they may be negative, as in Keras's losses.
    weights = _as_weights(sample_weight)
    lists = y_pred.row_lengths() if isinstance(y_pred, tf.RaggedTensor) else y_pred
    rule = "`sample_weight` must have a weight for each example."
    may_be_column = weights.shape.rank is None or weights.shape[1:].as_list() == [None]
    if may_be_column and not per_item:
        column = tf.ones([tf.shape(lists)[0], 1])
        weights = same_sizes(in_rows(weights), column, rule, num_axes=2)
        weights = tf.reshape(weights, [-1])
    _check_shape(weights, per_item)
    if weights.shape.rank:
        weights = same_sizes(weights, tf.convert_to_tensor(lists), rule)
    if weights.shape.rank == 2 and weights.shape[1] == 1:
        weights = tf.squeeze(weights, axis=1)
    return weights if signed else _not_negative(weights)


def _as_weights(sample_weight: Array) -> Tensor:
    """Weights as a dense tensor of floating numbers."""
    if isinstance(sample_weight, tf.RaggedTensor):
        sample_weight = _items(sample_weight, 0)
    weights = as_numbers("sample_weight", sample_weight)
    # Float64 holds the integers.
    return weights if weights.dtype.is_floating else tf.cast(weights, tf.float64)


def _check_shape(weights: Tensor, per_item: bool) -> None:
    rank = weights.shape.rank
    fits = rank is not None and rank <= 2
    shapes = "[batch], [batch, 1] or [batch, n]"
    if not per_item:
        fits = rank in (0, 1) or rank == 2 and weights.shape[1] == 1
        shapes = "[batch] or [batch, 1], since this has no form with weights of items"
    rule = f"`sample_weight` must be a number or numbers of the shape {shapes}."
    require(fits, rule, f"shape {weights.shape}")


def _not_negative(weights: Tensor) -> Tensor:
    """The weights; raises for one below 0, or is NaN there under XLA."""
    column = tf.reshape(weights, [-1, 1])
    column = checked(column, column < 0, column, "`sample_weight` must be >= 0")
    return tf.reshape(column, tf.shape(weights))


def weights_of_items(weights: Tensor, scores: Tensor) -> Tensor:
    """The weights of items, in the shape and the dtype of the scores, `[batch, n]`."""
    rule = "`sample_weight` of items must have the shape of `y_pred`."
    fits = weights.shape.is_compatible_with(scores.shape)
    require(fits, rule, f"{weights.shape} and {scores.shape}")
    weights = tf.cast(weights, scores.dtype)
    if weights.shape[1] is None:  # At run time there may be one for each list.
        weights *= tf.ones_like(scores)
    return weights


def mean_weights(labels: Labels, weights: Tensor) -> Tensor:
    """Mean weight of each list's positives by relevance, from `[batch, n]` or `[n]`."""
    if labels.class_ids is not None:
        ids = tf.maximum(labels.class_ids, 0)
        weights = tf.gather(weights, ids, batch_dims=weights.shape.rank - 1)
    relevance = labels.relevance
    total = tf.reduce_sum(relevance, axis=-1)
    # An item that counts for nothing may weigh anything.
    shares = tf.math.divide_no_nan(relevance, total[:, tf.newaxis])
    return tf.reduce_sum(tf.math.multiply_no_nan(weights, shares), axis=-1)
