"""Lists that hold the scores of all their items, and how labels become columns of them.

Losses enter through `losses_of`, operations through `as_lists`, metrics through
`over_positives`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists import positives as _positives
from rank4class_tf._lists.labels import Labels, as_scores, in_rows, padded_ids
from rank4class_tf._lists.lists import LOWEST, Lists
from rank4class_tf._lists.positives import FEW_POSITIVES, are_few, masked
from rank4class_tf._tf import gradients, raising, search
from rank4class_tf._tf.exact import divided, is_zero, violation
from rank4class_tf._tf.gather import gather, indices, scatter_add
from rank4class_tf._tf.gradients import (
    keep_nan,
    value_and_gradients,
    with_ready_gradients,
)
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._tf.shapes import width_of
from rank4class_tf._types import (
    Array,
    Function,
    Tensor,
    TensorPair,
    Tensors,
    WithGradient,
)


@dataclasses.dataclass(frozen=True, eq=False)
class DenseLists(Lists):
    """Lists with a tensor of scores `[batch, n]`, made by `as_lists` and the losses."""

    # Scores `[batch, n]` in which a masked item has `LOWEST`: so low that it counts for
    # nothing, yet finite, so that no difference of scores is NaN.
    filled: Tensor
    # The item of each column, `[batch, P]` int32, that of a positive where padded; None
    # where item i is in column i.
    class_ids: Tensor | None
    relevance: Tensor
    positive_scores: Tensor
    positive_weights: Tensor | None = None
    item_weights: Tensor | None = None
    is_graded: bool = True
    # The scores before a shift, if any: only these still hold `LOWEST`.
    unshifted: Tensor | None = None
    seed: Tensor | None = None

    @property
    def dtype(self) -> tf.DType:
        return self.filled.dtype

    @property
    def mask(self) -> Tensor:
        """`[batch, n]` booleans, False for a masked item."""
        # In a graph, a negated comparison would make a NaN a masked item.
        return self._marked != self._lowest

    @property
    def _marked(self) -> Tensor:
        return self.filled if self.unshifted is None else self.unshifted

    @property
    def scores(self) -> Tensor:
        """`[batch, n]`, 0 for a masked item."""
        return gradients.zero_unless(self.mask, self.filled)

    @property
    def num_items(self) -> Tensor:
        return tf.reduce_sum(tf.cast(self.mask, self.dtype), axis=-1)

    @property
    def max_items(self) -> int | Tensor:
        return width_of(self.filled)

    def item_relevance(self) -> Tensor:
        return self.by_item(self.relevance)

    def dense(self) -> DenseLists:
        return self

    def by_item(self, values: Tensor) -> Tensor:
        """Positives' values `[batch, P]`, 0 in other columns, by item, `[batch, n]`."""
        if self.class_ids is None:
            return values
        # Padding adds nothing to the item on which it stands.
        return scatter_add(self.class_ids, values, tf.shape(self.filled))

    def at_positives(self, values: Tensor) -> Tensor:
        """Values by item, `[batch, n]`, taken at the positives, `[batch, P]`."""
        return values if self.class_ids is None else gather(values, self.class_ids)

    def sum(
        self,
        function: Function,
        *parameters: Tensor,
        items: Tensors = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> Tensor:
        if tends_to_zero or vanishes:
            return tf.reduce_sum(function(self.filled, *items, *parameters), axis=-1)
        values = tf.convert_to_tensor(function(self.scores, *items, *parameters))
        if not values.shape.is_compatible_with(self.filled.shape):
            # One value for many items.
            values = tf.broadcast_to(values, tf.shape(self.filled))
        return tf.reduce_sum(gradients.zero_unless(self.mask, values), axis=-1)

    def sum_over_items(
        self,
        function: Function,
        items: Tensors = (),
        positives: Tensors = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> Tensor:
        if tends_to_zero or vanishes:
            items = [self.filled, *items]
        else:
            items = [tf.cast(self.mask, self.dtype), self.scores, *items]
            function = masked(function)
        positives = [self.positive_scores, *positives]
        return _positives.sum_over_items(function, items, positives, self.relevance)

    def sum_of_violations(self, margin: float, levels: Tensor | None = None) -> Tensor:
        if levels is None:
            levels = self.positive_scores
        if self._has_few:
            return _positives.sum_over_items(
                lambda s, p: violation(s + -p, margin),
                [self.filled],
                [levels],
                self.relevance,
            )
        sums, _ = _positives.excess(self.filled, levels, margin)
        return sums

    def violations(self, margin: float) -> TensorPair:
        if self._has_few:
            return super().violations(margin)
        return _positives.excess(self.filled, self.positive_scores, margin)

    @property
    def _has_few(self) -> bool:
        return are_few(self.max_positives, self.filled.shape[1])

    def log_sum_exp(
        self, temperature: Array = 1.0, smoothing: Array = 0.0
    ) -> TensorPair:
        highest = self._highest
        scores = self.filled - highest
        if not isinstance(temperature, (int, float)):
            # A masked item has the slope 0 in the temperature, times that of its score,
            # which must be finite.
            scores = tf.maximum(scores, -(self.dtype.max**0.25))
        total = tf.math.log(_sum_of_exp(divided(scores, temperature)))

        if not is_zero(smoothing):
            scores = tf.where(self.mask, self.filled - highest, 0.0)
            mean = tf.reduce_sum(scores, -1, keepdims=True)
            mean /= tf.maximum(self.num_items, 1)[:, tf.newaxis]
            total -= smoothing * divided(mean, temperature)
        return total, highest

    @property
    def _highest(self) -> Tensor:
        return tf.stop_gradient(tf.reduce_max(self.filled, axis=-1, keepdims=True))

    def top_k(self, k: Array) -> tuple[Tensor, Tensor, Tensor]:
        n = self.filled.shape[1]
        fits = not isinstance(k, int) or n is None or k <= n
        rule = f"`k` must be at most the number of items, {n}."
        _checks.require(fits, rule, f"k={k}")

        _, columns = search.top_k(tf.stop_gradient(self.filled), k)
        # The gradient of a gather costs less than that of top_k.
        values = gather(self.filled, columns)
        is_item = tf.cast(values != self._lowest, tf.int32)
        return values, columns, tf.maximum(tf.reduce_sum(is_item, axis=-1), 1)

    @property
    def _lowest(self) -> float:
        return LOWEST[self.dtype]

    def constant(self) -> DenseLists:
        filled = tf.stop_gradient(self.filled)
        positives = tf.stop_gradient(self.positive_scores)
        return self._with_scores(filled, positives, self.unshifted)

    def from_top(self) -> DenseLists:
        """The same lists less their highest score, which is taken as a constant."""
        highest = self._highest
        positives = below(self.positive_scores, highest)
        return self._with_scores(self.filled - highest, positives, self._marked)

    def scaled(self, factor: Array) -> DenseLists:
        filled = tf.where(self.mask, self.filled * factor, self._lowest)
        return self._with_scores(filled, self.positive_scores * factor)

    def shifted(self, shift: Tensor) -> DenseLists:
        if shift.shape[1] == 1:
            positives = self.positive_scores + shift
            return self._with_scores(self.filled + shift, positives, self._marked)
        filled = tf.where(self.mask, self.filled + shift, self._lowest)
        shift = tf.broadcast_to(shift, tf.shape(filled))
        positives = self.positive_scores + self.at_positives(shift)
        return self._with_scores(filled, positives)

    def _with_scores(
        self, filled: Tensor, positive_scores: Tensor, unshifted: Tensor | None = None
    ) -> DenseLists:
        return dataclasses.replace(
            self, filled=filled, positive_scores=positive_scores, unshifted=unshifted
        )

    def negatives(self) -> DenseLists:
        if self.class_ids is None:
            filled = tf.where(self.is_positive, self._lowest, self.filled)
            return self._against(filled)
        # All columns of a list without a positive hold item 0, which stays.
        has_positive = tf.reduce_any(self.is_positive, axis=-1, keepdims=True)
        low = tf.where(has_positive, self._lowest, gather(self.filled, self.class_ids))
        return self._against(_with_lower(self.filled, self.class_ids, low))

    def without(self, places: Tensor) -> DenseLists:
        low = tf.fill(tf.shape(places), self._lowest)
        return self._against(_with_lower(self.filled, places, low))

    def only(self, places: Tensor) -> DenseLists:
        filled = gather(self.filled, tf.maximum(places, 0))
        lists = self._against(tf.where(places >= 0, filled, self._lowest))
        return ChosenLists(**vars(lists))

    def _against(self, filled: Tensor) -> DenseLists:
        return UnlinkedLists(
            filled,
            self.class_ids,
            self.relevance,
            self.positive_scores,
            self.positive_weights,
            seed=self.seed,
        )

    @property
    def tensors(self) -> TensorPair:
        """Tensors with a gradient: the filled scores, and those of the positives."""
        return self.filled, self.positive_scores

    def with_ready_gradients(self, function: Callable) -> Tensor:
        """Values `[batch]` of a function of lists.

        Its result is like that of `value_and_gradients`.
        """
        return with_ready_gradients(
            lambda *x: function(self._with_scores(*x)), *self.tensors
        )

    def value_and_gradients(self, compute: Callable) -> tuple[Tensor, list[Tensor]]:
        """`compute` of these lists, `[batch]`, and its gradients in the `tensors`."""
        return value_and_gradients(
            lambda *x: compute(self._with_scores(*x)), *self.tensors
        )

    def keep_nan(self, losses: Tensor) -> Tensor:
        return keep_nan(losses, self.filled, self.positive_scores)


class UnlinkedLists(DenseLists):
    """Lists of which some items are gone, among them perhaps positives."""

    def by_item(self, values: Tensor) -> Tensor:
        raise ValueError(
            "The positives of these lists must be among the items. "
            "Received: lists made by `negatives`, `only` or `without`."
        )

    at_positives = by_item

    def _against(self, filled: Tensor) -> DenseLists:
        return dataclasses.replace(self, filled=filled, unshifted=None)


class ChosenLists(UnlinkedLists):
    """Lists of chosen items, which may be positive or not."""

    def negatives(self) -> NoReturn:
        raise ValueError(
            "`negatives` must come before `only`. Received: lists made by `only`."
        )


def _with_lower(filled: Tensor, places: Tensor, low: Tensor) -> Tensor:
    """The filled scores, in which the items at the places `[batch, k]` are `low`."""

    @tf.custom_gradient
    def lowered(filled: Tensor) -> WithGradient:
        filled = tf.tensor_scatter_nd_update(filled, indices(places), low)
        # The gradient needs no mask: whatever reads `LOWEST` is constant.
        return filled, lambda upstream: upstream

    return lowered(filled)


@tf.custom_gradient
def _sum_of_exp(rows: Tensor) -> WithGradient:
    """Sum of powers of e, `[batch, 1]`; TensorFlow's gradient takes one more pass."""
    powers = tf.exp(rows)
    total = tf.reduce_sum(powers, axis=-1, keepdims=True)
    return total, lambda upstream: upstream * powers


@tf.custom_gradient
def below(scores: Tensor, highest: Tensor) -> WithGradient:
    """Scores less the highest one of each list, `[batch, 1]`, a constant."""
    # The minimum keeps TensorFlow from rewriting `a - (b - highest)` in a graph as
    # `(a + highest) - b`. It cuts at most a rounding error, which must not cost the
    # gradient.
    return tf.minimum(scores - highest, 0), lambda upstream: (upstream, None)


def as_lists(
    scores: Tensor | Lists,
    class_ids: Tensor | None = None,
    relevance: Tensor | None = None,
    mask: Tensor | None = None,
) -> Lists:
    """Brings the arguments of an operation to `Lists`; `Lists` stay as they are.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no other argument. Float64 and
            integers of 32 bits and more become float64, all others float32.
        class_ids: integers `[batch]` or `[batch, P]` in [0, n), different within a
            list, padded with -1; None for no positives. Under XLA a list with another
            id becomes NaN.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item. A score of -inf is masked
            too.
    """
    if isinstance(scores, Lists):
        others = {"class_ids": class_ids, "relevance": relevance, "mask": mask}
        for name, value in others.items():
            rule = (
                f"`{name}` must be None where `scores` are `Lists`, which have "
                "their own."
            )
            _checks.require(value is None, rule, repr(value))
        return scores

    scores = as_scores("scores", scores)
    if class_ids is None:
        class_ids = tf.fill([tf.shape(scores)[0], 1], -1)
    if isinstance(class_ids, tf.RaggedTensor):
        class_ids = class_ids.to_tensor(-1)
    if tf.convert_to_tensor(class_ids).shape[1:] == [0]:
        relevance = None  # It has no columns either.
    nan_or_0 = tf.zeros_like(scores[:, :1])
    num_items = width_of(scores)
    class_ids, nan_or_0 = padded_ids(class_ids, num_items, nan_or_0, "class_ids")

    if relevance is None:
        relevance = tf.ones_like(class_ids, scores.dtype)
    else:
        relevance = _as_wide(tf.cast(relevance, scores.dtype), class_ids)
    relevance = tf.where((class_ids >= 0) & (relevance > 0), relevance, 0.0)

    mask = _checks.mask(mask, scores)
    if mask is not None:
        # A masked item does not count as positive.
        is_present = tf.gather(mask, tf.maximum(class_ids, 0), batch_dims=1)
        class_ids = tf.where(is_present, class_ids, -1)
        relevance = tf.where(is_present, relevance, 0.0)

    if raising.in_xla():
        # Elsewhere a wrong id has raised; here such a list gets a NaN positive.
        is_broken = tf.math.is_nan(nan_or_0)
        if mask is not None:
            mask |= is_broken
        scores += nan_or_0
        class_ids = tf.where(is_broken, 0, class_ids)
        relevance = tf.where(is_broken, tf.ones([], relevance.dtype), relevance)
    return dense_lists(fill_masked(scores, mask), class_ids, relevance)


def _as_wide(relevance: Tensor, class_ids: Tensor) -> Tensor:
    """Relevance in the shape of padded ids, `[batch, P]`."""
    relevance = in_rows(relevance)
    if relevance.shape[1] is None:  # Ids without columns have got one.
        missing = tf.cast(tf.shape(relevance)[1] == 0, tf.int32)
        relevance = tf.pad(relevance, [[0, 0], [0, missing]])
    rule = "`relevance` must have the shape of `class_ids`."
    return same_sizes(relevance, class_ids, rule, num_axes=2)


def dense_lists(
    filled: Tensor,
    class_ids: Tensor | None,
    relevance: Tensor,
    item_weights: Tensor | None = None,
    seed: Tensor | None = None,
) -> DenseLists:
    """Lists from tensors that were checked; `filled` is from `fill_masked`."""
    # Class ids `[batch, P]` are int32, padded with -1; None if column i holds item i.
    weights = item_weights
    if class_ids is None:
        scores = gradients.zero_unless(relevance > 0, filled)
    else:
        class_ids = without_padding(class_ids, relevance)
        scores = gather(filled, class_ids)
        if weights is not None:
            weights = tf.gather(weights, class_ids, batch_dims=1)
    if weights is not None:
        # An item that counts for nothing may weigh anything.
        weights = tf.where(relevance > 0, weights, 0.0)
    return DenseLists(
        filled, class_ids, relevance, scores, weights, item_weights, seed=seed
    )


def without_padding(class_ids: Tensor, relevance: Tensor) -> Tensor:
    """Replaces -1 in class ids `[batch, P]` by another positive of the list, or 0."""
    if class_ids.shape[1] != 1:
        most_relevant = tf.argmax(relevance, axis=-1, output_type=tf.int32)
        most_relevant = tf.gather(class_ids, most_relevant[:, tf.newaxis], batch_dims=1)
        class_ids = tf.where(relevance > 0, class_ids, most_relevant)
    return tf.maximum(class_ids, 0)


def fill_masked(
    scores: Tensor, mask: Array | None = None, counted: Array | None = None
) -> Tensor:
    """Scores with `LOWEST` for masked items; whatever reads these is constant there."""
    # A score of -inf masks an item too. A list that is not `counted`, `[batch]`, has no
    # loss, whatever its scores: it gets harmless ones, which its loss must not read.
    lowest = LOWEST[scores.dtype]

    @tf.custom_gradient
    def filled(scores: Tensor) -> WithGradient:
        scores = tf.maximum(scores, lowest)  # A NaN stays one.
        if mask is not None:
            low = tf.fill(tf.shape(scores), lowest)
            scores = tf.raw_ops.Select(condition=mask, x=scores, y=low)
        if counted is not None:
            # This works in place, unlike `tf.where`: .9 of the time of a step of 4,096
            # towers.
            is_counted = tf.expand_dims(tf.cast(counted, scores.dtype), 1)
            scores = tf.math.multiply_no_nan(scores, is_counted)
        return scores, lambda upstream: upstream

    return filled(scores)


def losses_of(
    compute: Callable, labels: Labels, filled: Tensor, seed: Tensor | None = None
) -> Tensor:
    """Applies a formula, `Lists` -> `[batch]`, to columns holding all positives."""
    # Labels of all n items, most of them 0, thus take only a few more passes than class
    # ids.

    def losses(filled: Tensor, ids: Tensor, relevance: Tensor) -> Tensor:
        lists = dense_lists(filled, ids, relevance, labels.item_weights, seed)
        lists = dataclasses.replace(lists, is_graded=labels.class_ids is None)
        return compute(lists)

    columns = _few_columns(labels)
    if columns is not None:
        return losses(filled, *columns)

    def loss_and_gradient(filled: Tensor) -> tuple[Tensor, list[Tensor]]:
        def of_columns(*columns: Tensor) -> tuple[Tensor, list[Tensor]]:
            return value_and_gradients(lambda x: losses(x, *columns), filled)

        # Each column takes a pass over the items: there are only as many as the batch
        # needs.
        return over_positives(of_columns, labels)

    # The gradient of `tf.cond` takes more time, and fails under XLA if the batch size
    # is not known.
    return with_ready_gradients(loss_and_gradient, filled)


def over_positives(function: Callable, labels: Labels) -> Any:
    """Applies a function without gradients to columns holding all positives."""
    # The function takes class ids `[batch, P]`, padded with -1, and relevance
    # `[batch, P]`. The shape of its result must not depend on P.
    columns = _few_columns(labels)
    if columns is not None:
        return function(*columns)
    # `FEW_POSITIVES` columns, or as many as the list with the most positives has.
    return tf.cond(
        tf.reduce_all(labels.num_positives <= FEW_POSITIVES),
        lambda: function(*_most_relevant(labels, FEW_POSITIVES)),
        lambda: function(*_compact(labels)),
    )


def _few_columns(labels: Labels) -> TensorPair | None:
    """Ids and relevance `[batch, P]` if labels cannot have many positives; or None."""
    if not are_few(labels.max_positives, labels.scores.shape[1]):
        return None
    if labels.class_ids is not None:
        return labels.class_ids, labels.relevance
    num_columns = labels.max_positives
    if num_columns is None or num_columns > FEW_POSITIVES:  # Lists are short.
        num_columns = tf.maximum(tf.reduce_max(labels.num_positives), 1)
    return _most_relevant(labels, num_columns)


def _most_relevant(labels: Labels, num_columns: int | Tensor) -> TensorPair:
    """The positives `[batch, num_columns]`, padded with -1, and relevance, with 0."""
    ids, relevance = labels.class_ids, labels.relevance
    if isinstance(num_columns, int) and relevance.shape[1] == num_columns:
        return labels.positives, relevance
    if relevance.shape[1] is None:
        padding = [[0, 0], [0, tf.maximum(num_columns - tf.shape(relevance)[1], 0)]]
        relevance = tf.pad(relevance, padding)
        ids = ids if ids is None else tf.pad(ids, padding)
    relevance, places = search.top_k(relevance, num_columns)
    ids = _ids_at(places, ids)
    return tf.where(relevance > 0, ids, -1), relevance


def _ids_at(places: Tensor, ids: Tensor | None) -> Tensor:
    """The ids `[batch, P]` at places; None where an item's place is its id."""
    return places if ids is None else tf.gather(ids, places, batch_dims=1)


def _compact(labels: Labels) -> TensorPair:
    """As `_most_relevant`, in label order, with as few columns as the batch needs."""
    is_positive = labels.relevance > 0
    target = tf.cumsum(tf.cast(is_positive, tf.int32), axis=-1) - 1
    # Columns count from 1. One without a positive adds 0, and 0 - 1 marks padding
    # below.
    shape = tf.shape(is_positive)
    column = tf.where(is_positive, tf.range(1, shape[1] + 1), 0)
    column = scatter_add(tf.maximum(target, 0), column, shape)

    width = labels.max_positives
    if not raising.in_xla():
        # XLA needs a static width: the largest number of positives that is possible.
        width = tf.reduce_max(labels.num_positives)
    column = column[:, :width] - 1
    is_padding = column < 0
    column = tf.maximum(column, 0)

    ids = tf.where(is_padding, -1, _ids_at(column, labels.class_ids))
    relevance = tf.gather(labels.relevance, column, batch_dims=1)
    return ids, tf.where(is_padding, tf.zeros_like(relevance), relevance)
