"""Lists that hold the scores of all their items, and how labels become columns of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists import positives as _positives
from rank4class_tf._lists.labels import Labels, padded_ids
from rank4class_tf._lists.lists import LOWEST, Lists
from rank4class_tf._lists.positives import FEW, are_few
from rank4class_tf._tf import raising, search
from rank4class_tf._tf.exact import divided, violation
from rank4class_tf._tf.gather import gather, indices, scatter_add, where
from rank4class_tf._tf.gradients import keep_nan, value_and_gradients, with_ready_gradients
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._tf.search import first_and_last_ranks
from rank4class_tf._types import TensorLike


class DenseLists(Lists):
    """Lists whose scores are a tensor `[batch, n]`; see `Lists`."""

    def __init__(
        self,
        filled: tf.Tensor,
        class_ids: tf.Tensor | None,
        relevance: tf.Tensor,
        positive_scores: tf.Tensor,
        unshifted: tf.Tensor | None = None,
        positive_weights: tf.Tensor | None = None,
        item_weights: tf.Tensor | None = None,
    ) -> None:
        """Not for users; `as_lists` and the losses make lists.

        Args:
            filled: `[batch, n]`, scores in which a masked item has `LOWEST`: so low that it counts
                for nothing, yet finite, so that no difference of scores is NaN.
            class_ids: `[batch, P]` int32, the item of each column, that of a positive where padded;
                None where item i is in column i.
            relevance: `[batch, P]`, 0 where padded.
            positive_scores: `[batch, P]`.
            unshifted: scores like `filled`, to which a shift has not been applied yet: they still
                show which items are masked. None if `filled` shows it.
            positive_weights: `[batch, P]`, 0 in a column without a positive, or None.
            item_weights: `[batch, n]` or None.
        """
        self._filled = filled
        self._class_ids = class_ids
        self._unshifted = filled if unshifted is None else unshifted
        self._positive_scores = positive_scores
        self.relevance = relevance
        self.positive_weights = positive_weights
        self.item_weights = item_weights

    # What there is.

    @property
    def dtype(self) -> tf.DType:
        return self._filled.dtype

    @property
    def positive_scores(self) -> tf.Tensor:
        return self._positive_scores

    @property
    def mask(self) -> tf.Tensor:
        # In a graph, a negated comparison would make a NaN a masked item.
        return self._unshifted != LOWEST[self.dtype]

    @property
    def scores(self) -> tf.Tensor:
        return where(self.mask, self._filled, 0.0)

    @property
    def num_items(self) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(self.mask, self.dtype), axis=-1)

    @property
    def num_columns_of_items(self) -> int | tf.Tensor:
        return self._filled.shape[1] or tf.shape(self._filled)[1]

    @property
    def has_few_columns(self) -> bool:
        return _positives.are_few(self.num_columns, self._filled.shape[1])

    def by_item(self, values: tf.Tensor) -> tf.Tensor:
        if self._class_ids is None:
            return values
        # Padding adds nothing to the item on which it stands.
        return scatter_add(self._class_ids, values, tf.shape(self._filled))

    def at_positives(self, values: tf.Tensor) -> tf.Tensor:
        return values if self._class_ids is None else gather(values, self._class_ids)

    # Reductions over the items.

    def sum(
        self,
        function: Callable,
        *parameters: tf.Tensor,
        items: Sequence[tf.Tensor] = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> tf.Tensor:
        if tends_to_zero or vanishes:
            return tf.reduce_sum(function(self._filled, *items, *parameters), axis=-1)
        values = function(self.scores, *items, *parameters)
        return tf.reduce_sum(where(self.mask, values, 0.0), axis=-1)

    def map(self, function: Callable, *parameters: tf.Tensor) -> tf.Tensor:
        return where(self.mask, function(self.scores, *parameters), 0.0)

    def sum_over_items(
        self,
        function: Callable,
        items: Sequence[tf.Tensor] = (),
        positives: Sequence[tf.Tensor] = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> tf.Tensor:
        items, positives = list(items), [self.positive_scores, *positives]
        if tends_to_zero or vanishes:
            first = [self._filled, *items]
            return _positives.sum_over_items(function, first, positives, lambda: self.num_visited)

        def masked(mask, *arguments):
            values = function(*arguments)
            return tf.where(mask > 0, values, tf.zeros_like(values))

        first = [tf.cast(self.mask, self.dtype), self.scores, *items]
        return _positives.sum_over_items(masked, first, positives, lambda: self.num_visited)

    def sum_over_differences(self, function: Callable, vanishes: bool = False) -> tf.Tensor:
        if self.num_columns != 1 or self._class_ids is None:
            return super().sum_over_differences(function, vanishes)
        differences = _differences(self._filled, self._class_ids)
        return tf.reduce_sum(function(differences), axis=-1, keepdims=True)

    def sum_of_violations(self, margin: float, levels: tf.Tensor | None = None) -> tf.Tensor:
        if levels is None:
            if self.num_columns == 1:
                return self.sum_over_differences(functools.partial(violation, margin=margin))
            levels = self.positive_scores
        if self.has_few_columns:
            return _positives.sum_over_items(
                lambda s, level: violation(s - level, margin),
                [self._filled],
                [levels],
                lambda: self.num_visited,
            )
        return keep_nan(_positives.excess(self._filled, levels, margin), self._filled)

    def violations(self, margin: float, levels: tf.Tensor) -> tf.Tensor:
        return violation(self._filled[:, tf.newaxis] - levels[..., tf.newaxis], margin)

    def max(self) -> tf.Tensor:
        return tf.reduce_max(self._filled, axis=-1)

    def log_sum_exp(self, temperature: TensorLike = 1.0) -> tf.Tensor:
        scores = self._filled
        if not isinstance(temperature, (int, float)):
            # A masked item has the slope 0 in the temperature, times that of its score, which must
            # be finite.
            scores = tf.maximum(scores, -(self.dtype.max**0.25))
        powers = tf.exp(divided(scores, temperature))
        return tf.math.log(tf.reduce_sum(powers, axis=-1))

    def top_k(self, k: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        n = self._filled.shape[1]
        if n is not None and k > n:
            raise ValueError(f"`k` must be at most the number of items, {n}. Received: k={k}.")
        _, columns = search.top_k(tf.stop_gradient(self._filled), k)
        # The gradient of a gather costs less than that of top_k.
        values = gather(self._filled, columns)
        found = tf.cast(values != LOWEST[self.dtype], tf.int32)
        return values, columns, tf.maximum(tf.reduce_sum(found, axis=-1), 1)

    def root(self, value: tf.Tensor, function: Callable) -> tf.Tensor:
        value = tf.stop_gradient(value)

        @tf.custom_gradient
        def of_scores(scores):
            def gradient(upstream):
                @tf.function(autograph=False)  # Forward-mode differentiation stops all tapes.
                def slopes_of(scores):
                    shares = tf.where(self.mask, function(scores, value), 0)
                    return tf.gradients(shares, scores)[0]

                # The derivative takes no time where nothing asks for it.
                slopes = slopes_of(scores)
                total = tf.reduce_sum(slopes, axis=-1, keepdims=True)
                return upstream * tf.math.divide_no_nan(slopes, total)

            return value, gradient

        return of_scores(self.scores)

    def tied_ranks(self) -> tuple[tf.Tensor, tf.Tensor]:
        return first_and_last_ranks(-self._filled)

    # Other lists from these.

    def constant(self) -> Lists:
        stopped = tf.stop_gradient(self._filled), tf.stop_gradient(self._positive_scores)
        return self._with_scores(*stopped, tf.stop_gradient(self._unshifted))

    def from_top(self) -> Lists:
        highest = tf.stop_gradient(tf.reduce_max(self._filled, axis=-1, keepdims=True))
        # The minimum changes nothing. Without it TensorFlow rewrites `a - (b - highest)` in a graph
        # as `(a + highest) - b`.
        positives = tf.minimum(self.positive_scores - highest, 0)
        return self._with_scores(self._filled - highest, positives, self._unshifted)

    def relative_to(self, level: tf.Tensor) -> Lists:
        return self._with_scores(
            self._filled - level, self.positive_scores - level, self._unshifted
        )

    def scaled(self, factor: TensorLike) -> Lists:
        filled = tf.where(self.mask, self._filled * factor, LOWEST[self.dtype])
        return self._with_scores(filled, self.positive_scores * factor)

    def shifted(self, shift: tf.Tensor) -> Lists:
        filled = tf.where(self.mask, self._filled + shift, LOWEST[self.dtype])
        shift = tf.broadcast_to(shift, tf.shape(filled))
        return self._with_scores(filled, self.positive_scores + self.at_positives(shift))

    def _with_scores(self, filled, positive_scores, unshifted=None):
        return type(self)(
            filled,
            self._class_ids,
            self.relevance,
            positive_scores,
            unshifted,
            self.positive_weights,
            self.item_weights,
        )

    def negatives(self) -> Lists:
        if self._class_ids is None:
            return self._against(tf.where(self.is_positive, LOWEST[self.dtype], self._filled))
        return self._against(_lowest_at(self._filled, self._class_ids))

    def positives_only(self) -> Lists:
        return self._against(where(self.is_positive, self.positive_scores, self.dtype.min / 8))

    def without(self, columns: tf.Tensor) -> Lists:
        return self._against(_lowest_at(self._filled, columns))

    def only(self, columns: tf.Tensor) -> Lists:
        filled = gather(self._filled, tf.maximum(columns, 0))
        return self._against(tf.where(columns >= 0, filled, LOWEST[self.dtype]))

    def highest(self, k: TensorLike) -> Lists:
        columns = tf.math.top_k(tf.stop_gradient(self._filled), k).indices
        return self.only(columns)

    def _against(self, filled):
        return others(filled, self.relevance, self.positive_scores, self.positive_weights)

    def with_ready_gradients(self, function: Callable) -> tf.Tensor:
        return with_ready_gradients(
            lambda *tensors: function(self.on(*tensors), *tensors),
            self._filled,
            self.positive_scores,
        )

    def on(self, filled: tf.Tensor, positive_scores: tf.Tensor) -> Lists:
        return self._with_scores(filled, positive_scores)

    def keep_nan(self, losses: tf.Tensor) -> tf.Tensor:
        return keep_nan(losses, self._filled, self.positive_scores)


class _ListsOfOthers(DenseLists):
    """Lists of items among which the positives are not: no item has a column of its own."""

    def by_item(self, values: tf.Tensor) -> tf.Tensor:
        """Raises; see `Lists`."""
        raise self._error()

    def at_positives(self, values: tf.Tensor) -> tf.Tensor:
        """Raises; see `Lists`."""
        raise self._error()

    def _error(self):
        return ValueError(
            "The positives of these lists must be among the items. "
            "Received: lists made by `negatives`, `only`, `without` or `positives_only`."
        )


def others(
    filled: tf.Tensor,
    relevance: tf.Tensor,
    positive_scores: tf.Tensor,
    positive_weights: tf.Tensor | None = None,
) -> DenseLists:
    """Positives against items `[batch, m]` among which they are not; see `DenseLists`."""
    return _ListsOfOthers(
        filled, None, relevance, positive_scores, positive_weights=positive_weights
    )


def as_lists(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
) -> Lists:
    """What every operation on lists does first; `Lists` stay as they are.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no other argument. All but float64 become
            float32.
        class_ids: integers `[batch]` or `[batch, P]` in [0, n), those of a list different, padded
            with -1; None for no positives.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item. A score of -inf is masked too.

    Raises:
        ValueError: if a shape is wrong, if an id is out of range (under XLA, such a list becomes
            NaN), or if `Lists` come with another argument.
    """
    if isinstance(scores, Lists):
        for name, value in (("class_ids", class_ids), ("relevance", relevance), ("mask", mask)):
            if value is not None:
                raise ValueError(
                    f"`{name}` must be None where `scores` are `Lists`, which have their own. "
                    f"Received: {value!r}."
                )
        return scores
    scores = tf.convert_to_tensor(scores)
    scores = tf.cast(scores, tf.float64 if scores.dtype == tf.float64 else tf.float32)
    if scores.shape.rank not in (None, 2):
        raise ValueError(f"`scores` must have the shape [batch, n]. Received: {scores.shape}.")
    if class_ids is None:
        class_ids = tf.fill([tf.shape(scores)[0], 1], -1)
    if isinstance(class_ids, tf.RaggedTensor):
        class_ids = class_ids.to_tensor(-1)
    no_columns = tf.convert_to_tensor(class_ids).shape[1:] == [0]
    num_items = scores.shape[1] or tf.shape(scores)[1]
    zero = tf.zeros_like(scores[:, :1])
    class_ids, zero = padded_ids(class_ids, num_items, zero, "class_ids")
    if relevance is None or no_columns:
        relevance = tf.ones_like(class_ids, scores.dtype)
    else:
        relevance = tf.cast(relevance, scores.dtype)
        if relevance.shape.rank == 1:
            relevance = relevance[:, tf.newaxis]
        if relevance.shape[1] is None:  # Ids without columns have got one.
            missing = tf.cast(tf.shape(relevance)[1] == 0, tf.int32)
            relevance = tf.pad(relevance, [[0, 0], [0, missing]])
        rule = "`relevance` must have the shape of `class_ids`."
        relevance = same_sizes(relevance, class_ids, rule, axes=2)
    relevance = where(class_ids >= 0, relevance, 0.0)
    mask = _checks.mask(mask, scores)
    if mask is not None:
        # A masked item does not count as positive.
        present = tf.gather(mask, tf.maximum(class_ids, 0), batch_dims=1)
        class_ids = tf.where(present, class_ids, -1)
        relevance = where(present, relevance, 0.0)
    if raising.in_xla():  # Elsewhere it has raised. The only positive of such a list is NaN.
        broken = tf.math.is_nan(zero)
        mask = None if mask is None else mask | broken
        scores += zero
        class_ids = tf.where(broken, 0, class_ids)
        relevance = tf.where(broken, tf.ones([], relevance.dtype), relevance)
    return of_columns(fill_masked(scores, mask), class_ids, relevance)


def of_columns(
    filled: tf.Tensor,
    class_ids: tf.Tensor | None,
    relevance: tf.Tensor,
    item_weights: tf.Tensor | None = None,
) -> DenseLists:
    """Lists from tensors that are known to be right.

    Args:
        filled: `[batch, n]`, from `fill_masked`.
        class_ids: `[batch, P]` int32, padded with -1; None if the columns are those of the items.
        relevance: `[batch, P]`, 0 in a column without a positive.
        item_weights: `[batch, n]`, or None.
    """
    weights = item_weights
    if class_ids is None:
        scores = where(relevance > 0, filled, 0.0)
    else:
        class_ids = without_padding(class_ids, relevance)
        scores = gather(filled, class_ids)
        weights = weights if weights is None else tf.gather(weights, class_ids, batch_dims=1)
    if weights is not None:  # An item that counts for nothing may weigh anything.
        weights = where(relevance > 0, weights, 0.0)
    return DenseLists(filled, class_ids, relevance, scores, None, weights, item_weights)


def without_padding(class_ids: tf.Tensor, relevance: tf.Tensor) -> tf.Tensor:
    """Class ids `[batch, P]` with that of a positive where one is padded, or 0."""
    if class_ids.shape[1] != 1:
        best = tf.argmax(relevance, axis=-1, output_type=tf.int32)
        best = tf.gather(class_ids, best[:, tf.newaxis], batch_dims=1)
        class_ids = tf.where(relevance > 0, class_ids, best)
    return tf.maximum(class_ids, 0)


def fill_masked(
    scores: tf.Tensor, mask: tf.Tensor | None = None, counted: tf.Tensor | None = None
) -> tf.Tensor:
    """Scores in which masked items have the lowest; what reads them is constant there.

    Args:
        scores: `[batch, n]`; -inf masks an item too.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        counted: `[batch]` booleans, False for a list that has no loss, whatever its scores: it gets
            harmless ones, which its loss must not read. None if all count.
    """
    lowest = LOWEST[scores.dtype]

    @tf.custom_gradient
    def filled(scores):
        # A NaN stays one.
        scores = tf.maximum(scores, lowest)
        if mask is not None:
            scores = tf.raw_ops.Select(
                condition=mask, x=scores, y=tf.fill(tf.shape(scores), lowest)
            )
        if counted is not None:
            scores = tf.raw_ops.Select(condition=counted, x=scores, y=tf.zeros_like(scores))
        return scores, lambda upstream: upstream

    return filled(scores)


@tf.custom_gradient
def _differences(scores, class_ids):
    """The scores `[batch, n]` less that of the one positive; the gradient takes half the passes."""

    def gradient(upstream):
        total = tf.reduce_sum(upstream, axis=-1, keepdims=True)
        return tf.tensor_scatter_nd_sub(upstream, indices(class_ids), total), None

    return scores - tf.gather(scores, class_ids, batch_dims=1), gradient


@tf.custom_gradient
def _lowest_at(filled, columns):
    """The scores with those in the columns made the lowest, where what reads them is constant."""
    low = tf.fill(tf.shape(columns), LOWEST[filled.dtype])
    filled = tf.tensor_scatter_nd_update(filled, indices(columns), low)
    return filled, lambda upstream: (upstream, None)


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
    relevance, places = search.top_k(relevance, columns)
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
