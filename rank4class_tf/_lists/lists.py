"""The type that every formula reads: a batch of lists of scored items, some of them positive."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists import excess, pairs
from rank4class_tf._lists.labels import padded_ids
from rank4class_tf._tf import raising, top
from rank4class_tf._tf.exact import violation
from rank4class_tf._tf.gather import gather, indices, scatter_add
from rank4class_tf._tf.gradients import with_ready_gradients
from rank4class_tf._tf.nan import keep_nan
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._tf.ties import first_and_last_ranks
from rank4class_tf._tf.where import where
from rank4class_tf._types import TensorLike

# The score of a masked item, in its dtype, which NumPy 1 would widen.
_LOWEST = {dtype: dtype.as_numpy_dtype(dtype.min / 8) for dtype in (tf.float32, tf.float64)}


def _cached(function):
    """A property that is computed once; anew in another graph, which cannot read a tensor of it."""
    name = f"_{function.__name__}_cache"

    def value(self):
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        known = self.__dict__.get(name)
        if known is None or known[0] is not graph:
            known = graph, function(self)
            self.__dict__[name] = known
        return known[1]

    return property(value, doc=function.__doc__)


class Lists:
    """A batch of lists of scored items, some of them positive.

    A formula reads scores through reductions over the items, such as `sum_over_items`, and through
    the `positive_scores`. A masked item takes part in no reduction. `scores`, `mask` and
    `item_relevance()` are there for a formula that needs every item by itself.

    The positives stand in columns: `relevance`, `positive_scores` and the results of the sums for
    each positive are `[batch, P]`, in one order. `relevance` is 0 in a column without a positive;
    the score there is that of a positive, or 0, so that no formula meets an infinite value.

    Attributes:
        relevance: `[batch, P]`, the label of each positive, 0 in other columns.
        positive_scores: `[batch, P]`.
        num_columns: P, None where only running tells.
    """

    def __init__(
        self,
        floored: tf.Tensor,
        class_ids: tf.Tensor | None,
        relevance: tf.Tensor,
        positive_scores: tf.Tensor,
        masked_as: Lists | None = None,
        apart: bool = False,
    ) -> None:
        """Not for users; `as_lists` and the losses make lists.

        Args:
            floored: `[batch, n]`; a masked item has the score `_LOWEST`, so low that it counts for
                nothing, yet finite, so that no difference of scores is NaN.
            class_ids: `[batch, P]` int32, a positive where padded; None where the columns are those
                of the items, or where the positives are not among the items.
            relevance: `[batch, P]`, 0 where padded.
            positive_scores: `[batch, P]`.
            masked_as: lists that have the mask, where these scores do not show it.
            apart: whether the positives are not among the items.
        """
        self._floored = floored
        self._class_ids = class_ids
        self._masked_as = masked_as
        self._apart = apart
        self.positive_scores = positive_scores
        self.relevance = relevance
        self.num_columns: int | None = relevance.shape[1]

    # What there is.

    @property
    def dtype(self) -> tf.DType:
        """That of the scores, float32 or float64."""
        return self._floored.dtype

    @_cached
    def mask(self) -> tf.Tensor:
        """`[batch, n]` booleans, False for a masked item."""
        if self._masked_as is not None:
            return self._masked_as.mask
        # A negated comparison would make a NaN a masked item in a graph.
        return self._floored != _LOWEST[self.dtype]

    @_cached
    def scores(self) -> tf.Tensor:
        """`[batch, n]`, 0 for a masked item."""
        return where(self.mask, self._floored, 0.0)

    @property
    def num_items(self) -> tf.Tensor:
        """`[batch]`, how many items are not masked, in the dtype of the scores."""
        return tf.reduce_sum(tf.cast(self.mask, self.dtype), axis=-1)

    @property
    def is_positive(self) -> tf.Tensor:
        """`[batch, P]` booleans, which columns hold a positive."""
        return self.relevance > 0

    @property
    def num_columns_of_items(self) -> int | tf.Tensor:
        """n, the masked items with the others; an int where it is known."""
        return self._floored.shape[1] or tf.shape(self._floored)[1]

    @property
    def has_few_columns(self) -> bool:
        """Whether it is known that a pass over the items for each column takes little."""
        return pairs.are_few(self.num_columns, self._floored.shape[1])

    @_cached
    def num_visited(self) -> tf.Tensor:
        """How many leading columns hold all positives of the batch, a scalar."""
        return pairs.visited(self.relevance)

    def item_relevance(self) -> tf.Tensor:
        """Relevance by item, `[batch, n]`."""
        return self.by_item(self.relevance)

    def by_item(self, values: tf.Tensor) -> tf.Tensor:
        """Values of the positives, `[batch, P]`, 0 in other columns, by item, `[batch, n]`."""
        self._check_positives_are_items()
        if self._class_ids is None:
            return values
        # Padding adds nothing to the item on which it stands.
        return scatter_add(self._class_ids, values, tf.shape(self._floored))

    def at_positives(self, values: tf.Tensor) -> tf.Tensor:
        """What stands at the positives, `[batch, P]`, of values by item, `[batch, n]`."""
        self._check_positives_are_items()
        return values if self._class_ids is None else gather(values, self._class_ids)

    def _check_positives_are_items(self):
        if self._apart:
            raise ValueError(
                "The positives of these lists must be among the items. "
                "Received: lists made by `negatives`, `only`, `without` or `positives_only`."
            )

    # Reductions over the items.

    def sum(self, function: Callable, *parameters: tf.Tensor, vanishes: bool = False) -> tf.Tensor:
        """`sum_j function(score_j, *parameters)`, `[batch]`.

        Args:
            function: works entry by entry.
            *parameters: `[batch, 1]` each.
            vanishes: whether the function tends to 0, with its slope, as the score falls, so that a
                masked item needs no mask, which saves time.
        """
        if vanishes:
            return tf.reduce_sum(function(self._floored, *parameters), axis=-1)
        values = function(self.scores, *parameters)
        return tf.reduce_sum(where(self.mask, values, 0.0), axis=-1)

    def map(self, function: Callable, *parameters: tf.Tensor) -> tf.Tensor:
        """`function(score_j, *parameters)`, `[batch, n]`, 0 for a masked item; see `sum`."""
        return where(self.mask, function(self.scores, *parameters), 0.0)

    def sum_over_items(
        self,
        function: Callable,
        items: Sequence[tf.Tensor] = (),
        positives: Sequence[tf.Tensor] = (),
        vanishes: bool = False,
    ) -> tf.Tensor:
        """`sum_j function(score_j, *items_j, score_p, *positives_p)` for each positive p.

        Time is O(P n), memory O(n).

        Args:
            function: works entry by entry.
            items: `[batch, n]` each.
            positives: `[batch, P]` each.
            vanishes: as in `sum`.

        Returns:
            `[batch, P]`.
        """
        items, positives = list(items), [self.positive_scores, *positives]
        if vanishes:
            first = [self._floored, *items]
            return pairs.sum_over_items(function, first, positives, lambda: self.num_visited)

        def masked(mask, *arguments):
            values = function(*arguments)
            return tf.where(mask > 0, values, tf.zeros_like(values))

        first = [tf.cast(self.mask, self.dtype), self.scores, *items]
        return pairs.sum_over_items(masked, first, positives, lambda: self.num_visited)

    def sum_over_differences(self, function: Callable) -> tf.Tensor:
        """`sum_j function(score_j - score_p)` for each positive p, `[batch, P]`.

        Args:
            function: works entry by entry, and tends to 0, with its slope, as the difference falls.
        """
        if self.num_columns != 1 or self._class_ids is None:
            return self.sum_over_items(lambda s, p: function(s - p), vanishes=True)
        differences = _differences(self._floored, self._class_ids)
        return tf.reduce_sum(function(differences), axis=-1, keepdims=True)

    def sum_of_violations(self, margin: float, levels: tf.Tensor | None = None) -> tf.Tensor:
        r"""$\sum_j (z_j - l_p + \eta)_+$ for each positive p, `[batch, P]`.

        Few positives take a pass over the items each, many O(n log P) in all.

        Args:
            margin: $\eta$ > 0.
            levels: `[batch, P]`, none above the highest score by more than the margin; None means
                the scores of the positives.
        """
        if levels is None:
            if self.num_columns == 1:
                return self.sum_over_differences(functools.partial(violation, margin=margin))
            levels = self.positive_scores
        if self.has_few_columns:
            return pairs.sum_over_items(
                lambda s, level: violation(s - level, margin),
                [self._floored],
                [levels],
                lambda: self.num_visited,
            )
        return keep_nan(excess.excess(self._floored, levels, margin), self._floored)

    def violations(self, margin: float, levels: tf.Tensor) -> tf.Tensor:
        r"""$(z_j - l_p + \eta)_+$ for each item and level, `[batch, P, n]`; 0 for a masked item."""
        return violation(self._floored[:, tf.newaxis] - levels[..., tf.newaxis], margin)

    def max(self) -> tf.Tensor:
        """The highest score, `[batch]`."""
        return tf.reduce_max(self._floored, axis=-1)

    def log_sum_exp(self, temperature: TensorLike = 1.0) -> tf.Tensor:
        """`log sum_j exp(score_j / temperature)`, `[batch]`; exact where the highest score is 0."""
        scores = self._floored
        if not isinstance(temperature, (int, float)):
            # A masked item has the slope 0 in the temperature, times that of its score, which must
            # be finite.
            scores = tf.maximum(scores, -(self.dtype.max**0.25))
        return tf.math.log(tf.reduce_sum(tf.exp(scores / temperature), axis=-1))

    def top_k(self, k: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The k highest scores.

        Args:
            k: positive integer, at most n.

        Returns:
            The scores `[batch, k]` in falling order, far below all others where a list has fewer
            items; their columns `[batch, k]`; and `[batch]` int32, how many of them there are, at
            least 1.

        Raises:
            ValueError: if `k` exceeds n.
        """
        n = self._floored.shape[1]
        if n is not None and k > n:
            raise ValueError(f"`k` must be at most the number of items, {n}. Received: k={k}.")
        _, columns = top.top_k(tf.stop_gradient(self._floored), k)
        # The gradient of a gather costs less than that of top_k.
        values = gather(self._floored, columns)
        found = tf.cast(values != _LOWEST[self.dtype], tf.int32)
        return values, columns, tf.maximum(tf.reduce_sum(found, axis=-1), 1)

    def tied_ranks(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The first and the last rank of each item among those of its score, `[batch, n]` int32."""
        return first_and_last_ranks(-self._floored)

    # Other lists from these.

    def from_top(self) -> Lists:
        """The same lists with the highest score subtracted, as a constant, from all scores.

        Only differences count, and have the more digits the nearer to 0 the scores are.
        """
        highest = tf.stop_gradient(tf.reduce_max(self._floored, axis=-1, keepdims=True))
        # The minimum changes nothing. Without it TensorFlow rewrites `a - (b - highest)` in a graph
        # as `(a + highest) - b`.
        positives = tf.minimum(self.positive_scores - highest, 0)
        return Lists(
            self._floored - highest, self._class_ids, self.relevance, positives, self, self._apart
        )

    def relative_to(self, level: tf.Tensor) -> Lists:
        """The same lists with a level `[batch, 1]` subtracted from all scores."""
        positives = self.positive_scores - level
        return Lists(
            self._floored - level, self._class_ids, self.relevance, positives, self, self._apart
        )

    def scaled(self, factor: TensorLike) -> Lists:
        """The same lists with all scores times a factor > 0, a scalar or `[batch, 1]`."""
        floored = tf.where(self.mask, self._floored * factor, _LOWEST[self.dtype])
        positives = self.positive_scores * factor
        return Lists(floored, self._class_ids, self.relevance, positives, apart=self._apart)

    def shifted(self, shift: tf.Tensor) -> Lists:
        """The same lists with a shift of each score, `[batch, n]` or `[batch, 1]`, added."""
        self._check_positives_are_items()
        floored = tf.where(self.mask, self._floored + shift, _LOWEST[self.dtype])
        shift = tf.broadcast_to(shift, tf.shape(floored))
        positives = self.positive_scores + self.at_positives(shift)
        return Lists(floored, self._class_ids, self.relevance, positives)

    def negatives(self) -> Lists:
        """The same positives, against the items that are not positive."""
        if self._class_ids is None:
            floored = tf.where(self.is_positive, _LOWEST[self.dtype], self._floored)
        else:
            floored = _low_at(self._floored, self._class_ids)
        return Lists(floored, None, self.relevance, self.positive_scores, apart=True)

    def positives_only(self) -> Lists:
        """The same positives, against themselves."""
        floored = where(self.is_positive, self.positive_scores, self.dtype.min / 8)
        return Lists(floored, None, self.relevance, self.positive_scores, apart=True)

    def without(self, columns: tf.Tensor) -> Lists:
        """The same positives, against the items but for those in the columns, `[batch, k]`."""
        floored = _low_at(self._floored, columns)
        return Lists(floored, None, self.relevance, self.positive_scores, apart=True)

    def only(self, columns: tf.Tensor) -> Lists:
        """The same positives, against the items in the columns, `[batch, k]`; -1 means none."""
        floored = gather(self._floored, tf.maximum(columns, 0))
        floored = tf.where(columns >= 0, floored, _LOWEST[self.dtype])
        return Lists(floored, None, self.relevance, self.positive_scores, apart=True)

    def highest(self, k: TensorLike) -> Lists:
        """The same positives, against the k highest items, in falling order."""
        columns = tf.math.top_k(tf.stop_gradient(self._floored), k).indices
        return self.only(columns)

    def with_ready_gradients(self, function: Callable) -> tf.Tensor:
        """Values of which a function makes the gradients too; see `_tf.gradients`.

        Args:
            function: takes lists like these, and the two tensors that they read. It returns values
                `[batch]` and their gradients with respect to the tensors.
        """
        return with_ready_gradients(
            lambda *tensors: function(self.on(*tensors), *tensors),
            self._floored,
            self.positive_scores,
        )

    def on(self, floored: tf.Tensor, positive_scores: tf.Tensor) -> Lists:
        """The same labels on the tensors that `with_ready_gradients` hands out."""
        return Lists(floored, self._class_ids, self.relevance, positive_scores, apart=self._apart)

    def sum_of_positives(self, values: tf.Tensor) -> tf.Tensor:
        """Sum over the positives of values `[batch, P]`, `[batch]`."""
        if self.num_columns == 1:
            return tf.squeeze(tf.where(self.relevance > 0, values, 0), axis=1)
        return tf.reduce_sum(where(self.is_positive, values, 0.0), axis=-1)

    def keep_nan(self, losses: tf.Tensor) -> tf.Tensor:
        """Losses `[batch]`, NaN where a score of the list is, which sorting may hide."""
        return keep_nan(losses, self._floored, self.positive_scores)


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
        ValueError: if a shape is another, or an id is out of range; where XLA compiles, a list with
            such an id is NaN. If `Lists` come with another argument.
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
    class_ids, invalid = padded_ids(class_ids, num_items, scores, "class_ids")
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
        # A positive that is masked is none.
        present = tf.gather(mask, tf.maximum(class_ids, 0), batch_dims=1)
        class_ids = tf.where(present, class_ids, -1)
        relevance = where(present, relevance, 0.0)
    if raising.in_xla():  # Elsewhere it has raised. The only positive of such a list is NaN.
        broken = invalid[:, tf.newaxis]
        mask = None if mask is None else mask | broken
        scores = tf.where(broken, tf.constant(float("nan"), scores.dtype), scores)
        class_ids = tf.where(broken, 0, class_ids)
        relevance = tf.where(broken, tf.ones([], relevance.dtype), relevance)
    return of_columns(floor(scores, mask), class_ids, relevance)


def of_columns(floored: tf.Tensor, class_ids: tf.Tensor | None, relevance: tf.Tensor) -> Lists:
    """Lists from tensors that are known to be right.

    Args:
        floored: `[batch, n]`, from `floor`.
        class_ids: `[batch, P]` int32, padded with -1; None if the columns are those of the items.
        relevance: `[batch, P]`, 0 in a column without a positive.
    """
    if class_ids is None:
        return Lists(floored, None, relevance, where(relevance > 0, floored, 0.0))
    if class_ids.shape[1] != 1:
        best = tf.argmax(relevance, axis=-1, output_type=tf.int32)
        best = tf.gather(class_ids, best[:, tf.newaxis], batch_dims=1)
        class_ids = tf.where(relevance > 0, class_ids, best)
    class_ids = tf.maximum(class_ids, 0)
    return Lists(floored, class_ids, relevance, gather(floored, class_ids))


def floor(
    scores: tf.Tensor, mask: tf.Tensor | None = None, counted: tf.Tensor | None = None
) -> tf.Tensor:
    """Scores in which masked items have the lowest; what reads them is constant there.

    Args:
        scores: `[batch, n]`; -inf masks an item too.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        counted: `[batch]` booleans, False for a list that has no loss, whatever its scores: it gets
            harmless ones, which its loss must not read. None if all count.
    """
    lowest = _LOWEST[scores.dtype]

    @tf.custom_gradient
    def floored(scores):
        # A NaN stays one.
        scores = tf.maximum(scores, lowest)
        if mask is not None:
            scores = tf.raw_ops.Select(
                condition=mask, x=scores, y=tf.fill(tf.shape(scores), lowest)
            )
        if counted is not None:
            scores = tf.raw_ops.Select(condition=counted, x=scores, y=tf.zeros_like(scores))
        return scores, lambda upstream: upstream

    return floored(scores)


@tf.custom_gradient
def _differences(scores, class_ids):
    """The scores `[batch, n]` less that of the one positive; the gradient takes half the passes."""

    def gradient(upstream):
        total = tf.reduce_sum(upstream, axis=-1, keepdims=True)
        return tf.tensor_scatter_nd_sub(upstream, indices(class_ids), total), None

    return scores - tf.gather(scores, class_ids, batch_dims=1), gradient


@tf.custom_gradient
def _low_at(floored, columns):
    """The scores with those in the columns made the lowest, where what reads them is constant."""
    low = tf.fill(tf.shape(columns), _LOWEST[floored.dtype])
    floored = tf.tensor_scatter_nd_update(floored, indices(columns), low)
    return floored, lambda upstream: (upstream, None)
