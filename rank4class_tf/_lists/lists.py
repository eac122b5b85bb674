"""The type that every formula reads: a batch of lists of scored items, some of them positive."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from rank4class_tf._lists import positives as _positives
from rank4class_tf._tf.gather import where
from rank4class_tf._types import TensorLike

# The score of a masked item, in its dtype, which NumPy 1 would widen.
LOWEST = {dtype: dtype.as_numpy_dtype(dtype.min / 8) for dtype in (tf.float32, tf.float64)}


class EveryItemNeeded(ValueError):
    """A formula asked for something that only lists which hold every score can give."""


class Lists(abc.ABC):
    """A batch of lists of scored items, some of them positive.

    A formula reads scores through reductions over the items, such as `sum_over_items`, and through
    the `positive_scores`. A masked item takes part in no reduction.

    The positives stand in columns: `relevance`, `positive_scores` and the results of the sums for
    each positive are `[batch, P]`, in one order. `relevance` is 0 in a column without a positive;
    the score there is that of a positive, or 0, so that no formula meets an infinite value.

    Some lists never hold the scores of all their items at once: those over all classes of a large
    output layer. A formula that reads only reductions, `positive_scores` and the highest items
    takes such lists as well. `scores`, `mask`, `map`, `at_positives`, `violations`, `tied_ranks`
    and `with_ready_gradients` need every item by itself; there they raise, and a loss over all
    classes falls back to a few lists at a time.

    Attributes:
        relevance: `[batch, P]`, the label of each positive, 0 in other columns.
        num_columns: P, None where only running tells.
        positive_weights: `[batch, P]`, the weight of each positive, where items have weights; None
            means 1. `sum_of_positives` weighs by it.
        item_weights: `[batch, n]`, the weights of all items, 0 for a masked one; None means 1.
    """

    relevance: tf.Tensor
    positive_weights: tf.Tensor | None = None
    item_weights: tf.Tensor | None = None

    # What there is.

    @property
    @abc.abstractmethod
    def dtype(self) -> tf.DType:
        """The dtype of the scores, float32 or float64."""

    @property
    @abc.abstractmethod
    def positive_scores(self) -> tf.Tensor:
        """`[batch, P]`."""

    @property
    @abc.abstractmethod
    def num_items(self) -> tf.Tensor:
        """`[batch]`, how many items are not masked, in the dtype of the scores."""

    @property
    @abc.abstractmethod
    def num_columns_of_items(self) -> int | tf.Tensor:
        """n, the masked items with the others; an int where it is known."""

    @property
    @abc.abstractmethod
    def has_few_columns(self) -> bool:
        """Whether it is known that a pass over the items for each column takes little."""

    @property
    def num_worth_finding(self) -> int:
        """How many of the highest items Sparsemax tries first, which may save it passes over all.

        If few are in the support, as in a trained model, 15 is faster than 31 and 63.
        """
        return 15

    @property
    def num_columns(self) -> int | None:
        """P, None where only running tells."""
        return self.relevance.shape[1]

    @property
    def is_positive(self) -> tf.Tensor:
        """`[batch, P]` booleans, which columns hold a positive."""
        return self.relevance > 0

    @property
    def num_visited(self) -> tf.Tensor:
        """How many leading columns hold all positives of the batch, a scalar."""
        return _positives.visited(self.relevance)

    def item_relevance(self) -> Any:
        """Relevance by item, `[batch, n]`."""
        return self.by_item(self.relevance)

    @abc.abstractmethod
    def by_item(self, values: tf.Tensor) -> Any:
        """Values of the positives, `[batch, P]`, 0 in other columns, by item, `[batch, n]`.

        Lists that do not hold every item return what their sums take in place of a tensor.
        """

    # What needs every item by itself.

    @property
    def mask(self) -> tf.Tensor:
        """`[batch, n]` booleans, False for a masked item."""
        self._need_every_item("mask")

    @property
    def scores(self) -> tf.Tensor:
        """`[batch, n]`, 0 for a masked item."""
        self._need_every_item("scores")

    def map(self, function: Callable, *parameters: tf.Tensor) -> tf.Tensor:
        """`function(score_j, *parameters)`, `[batch, n]`, 0 for a masked item; see `sum`."""
        self._need_every_item("map")

    def at_positives(self, values: tf.Tensor) -> tf.Tensor:
        """What stands at the positives, `[batch, P]`, of values by item, `[batch, n]`."""
        self._need_every_item("at_positives")

    def violations(self, margin: float, levels: tf.Tensor) -> tf.Tensor:
        r"""$(z_j - l_p + \eta)_+$ for each item and level, `[batch, P, n]`; 0 for a masked item."""
        self._need_every_item("violations")

    def tied_ranks(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The first and the last rank of each item among those of its score, `[batch, n]` int32."""
        self._need_every_item("tied_ranks")

    def with_ready_gradients(self, function: Callable) -> tf.Tensor:
        """Computes values with a function that also computes their gradients; see `_tf.gradients`.

        Args:
            function: takes lists like these, and the two tensors that they read. It returns values
                `[batch]` and their gradients with respect to the tensors.
        """
        self._need_every_item("with_ready_gradients")

    def _need_every_item(self, name: str) -> NoReturn:
        raise EveryItemNeeded(f"`{name}` needs the scores of all items at once.")

    # Reductions over the items.

    @abc.abstractmethod
    def sum(
        self,
        function: Callable,
        *parameters: tf.Tensor,
        items: Sequence[Any] = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> tf.Tensor:
        """`sum_j function(score_j, *items_j, *parameters)`, `[batch]`.

        The gradient flows to the scores and the parameters, not to what the function captures.

        Args:
            function: works entry by entry.
            *parameters: `[batch, 1]` each.
            items: values by item, from `by_item`.
            tends_to_zero: whether the function tends to 0, with its slope, as the score falls; then
                a masked item needs no mask, which saves time.
            vanishes: whether the function is 0 up to some score, and never negative. Of very many
                items only those with a value above 0 may then take part in the gradient.
        """

    @abc.abstractmethod
    def sum_over_items(
        self,
        function: Callable,
        items: Sequence[Any] = (),
        positives: Sequence[tf.Tensor] = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> tf.Tensor:
        """`sum_j function(score_j, *items_j, score_p, *positives_p)` for each positive p.

        Time is O(P n), memory O(n). The gradient flows to the scores and the arguments, not to what
        the function captures.

        Args:
            function: works entry by entry.
            items: `[batch, n]` each, from `by_item`.
            positives: `[batch, P]` each.
            tends_to_zero: as in `sum`.
            vanishes: as in `sum`.

        Returns:
            `[batch, P]`.
        """

    def sum_over_differences(self, function: Callable, vanishes: bool = False) -> tf.Tensor:
        """`sum_j function(score_j - score_p)` for each positive p, `[batch, P]`.

        Args:
            function: works entry by entry, and tends to 0, with its slope, as the difference falls.
            vanishes: as in `sum`.
        """
        return self.sum_over_items(
            lambda s, p: function(s - p), tends_to_zero=True, vanishes=vanishes
        )

    @abc.abstractmethod
    def sum_of_violations(self, margin: float, levels: tf.Tensor | None = None) -> tf.Tensor:
        r"""$\sum_j (z_j - l_p + \eta)_+$ for each positive p, `[batch, P]`.

        Few positives take a pass over the items each, many O(n log P) in all.

        Args:
            margin: $\eta$ > 0.
            levels: `[batch, P]`, none above the highest score by more than the margin; None means
                the scores of the positives.
        """

    @abc.abstractmethod
    def max(self) -> tf.Tensor:
        """The highest score, `[batch]`."""

    @abc.abstractmethod
    def log_sum_exp(self, temperature: TensorLike = 1.0) -> tf.Tensor:
        """`log sum_j exp(score_j / temperature)`, `[batch]`; exact where the highest score is 0."""

    @abc.abstractmethod
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

    @abc.abstractmethod
    def root(self, value: tf.Tensor, function: Callable) -> tf.Tensor:
        """A root `[batch, 1]` with its gradient: where a sum over the items has a fixed value.

        Args:
            value: t, where `sum_j function(score_j, t)` has the value.
            function: works entry by entry.
        """

    # Other lists from these.

    @abc.abstractmethod
    def constant(self) -> Lists:
        """The same lists, of which nothing has a gradient."""

    @abc.abstractmethod
    def from_top(self) -> Lists:
        """The same lists with the highest score subtracted, as a constant, from all scores.

        Only differences count, and have the more digits the nearer to 0 the scores are.
        """

    @abc.abstractmethod
    def relative_to(self, level: tf.Tensor) -> Lists:
        """The same lists with a level `[batch, 1]` subtracted from all scores."""

    @abc.abstractmethod
    def scaled(self, factor: TensorLike) -> Lists:
        """The same lists with all scores times a factor > 0, a scalar or `[batch, 1]`."""

    @abc.abstractmethod
    def shifted(self, shift: tf.Tensor) -> Lists:
        """The same lists with a shift added to each score: `[batch, n]`, `[1, n]` or `[batch, 1]`.

        Lists that do not hold every item take `[1, n]` without a gradient; for others they raise.
        """

    @abc.abstractmethod
    def negatives(self) -> Lists:
        """The same positives, against the items that are not positive."""

    @abc.abstractmethod
    def positives_only(self) -> Lists:
        """The same positives, against themselves."""

    @abc.abstractmethod
    def without(self, columns: tf.Tensor) -> Lists:
        """The same positives, against the items but for those in the columns, `[batch, k]`."""

    @abc.abstractmethod
    def only(self, columns: tf.Tensor) -> Lists:
        """The same positives, against the items in the columns, `[batch, k]`; -1 means none."""

    @abc.abstractmethod
    def highest(self, k: TensorLike) -> Lists:
        """The same positives, against the k highest items, in falling order."""

    # Of values of the positives.

    def sum_of_positives(self, values: tf.Tensor) -> tf.Tensor:
        """Sum over the positives of values `[batch, P]`, times their weights, `[batch]`."""
        if self.positive_weights is not None:
            values *= self.positive_weights
        if self.num_columns == 1:
            return tf.squeeze(where(self.is_positive, values, 0.0), axis=1)
        return tf.reduce_sum(where(self.is_positive, values, 0.0), axis=-1)

    @abc.abstractmethod
    def keep_nan(self, losses: tf.Tensor) -> tf.Tensor:
        """Losses `[batch]`, NaN where a score of the list is, which sorting may hide."""
