"""The type that every formula reads.

`DenseLists` (dense.py) hold a matrix of scores, `BlockedLists` (blocked.py) make the
scores of all classes block by block. A formula that only knows `Lists` works on both.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from rank4class_tf._tf.gradients import zero_unless
from rank4class_tf._types import Array, Function, Tensor, TensorPair, Tensors

if TYPE_CHECKING:
    from rank4class_tf._lists.dense import DenseLists

# The score of a masked item, in its dtype, which NumPy 1 would widen. Lists hold
# float32 or float64; functions of margins take half precision, too.
_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
LOWEST = {dtype: dtype.as_numpy_dtype(dtype.min / 8) for dtype in _DTYPES}


class EveryItemNeeded(ValueError):
    """A formula asked for something that only lists which hold every score can give."""


class Lists(abc.ABC):
    """A batch of lists of scored items, some of them positive.

    A formula reads scores through reductions over the items, such as `sum_over_items`,
    and through the `positive_scores`. A masked item takes part in no reduction.

    The positives stand in columns: `relevance`, `positive_scores` and the results of
    the sums for each positive are `[batch, P]`, in one order. `relevance` is 0 in a
    column without a positive; the score there is that of a positive, or 0, so that no
    formula meets an infinite value.

    Lists over all classes of a large output layer never hold all their scores at once.
    A formula takes them as well if it reads only reductions and asks for one sum with a
    gradient: `sum`, `sum_over_...`, `sum_of_violations` or `log_sum_exp`. Any other
    formula still works there, for a few examples at a time. One that needs every score
    asks for `dense()`.

    Attributes:
        relevance: `[batch, P]`, the label of each positive, 0 in other columns.
        positive_scores: `[batch, P]`.
        item_weights: `[batch, n]`, the weights of all items, 0 for a masked one; None
            means 1.
        positive_weights: `[batch, P]`, those of the positives, or None;
            `sum_of_positives` weighs by them.
        seed: two int64, for the stateless draws of a random loss on these lists; None
            in others.
        is_graded: False if the labels are class ids, which make all positives equally
            relevant.
    """

    relevance: Tensor
    positive_scores: Tensor
    item_weights: Tensor | None = None
    positive_weights: Tensor | None = None
    seed: Tensor | None = None
    is_graded: bool = False

    # Shapes, counts, and values by item.

    @property
    @abc.abstractmethod
    def dtype(self) -> tf.DType:
        """The dtype of the scores, float32 or float64."""

    @property
    @abc.abstractmethod
    def num_items(self) -> Tensor:
        """`[batch]`, how many items are not masked, in the dtype of the scores."""

    @property
    @abc.abstractmethod
    def max_items(self) -> int | Tensor:
        """n, which includes the masked items; an int where it is known."""

    @property
    def max_positives(self) -> int | None:
        """P; None if known only at run time."""
        return self.relevance.shape[1]

    @property
    def is_positive(self) -> Tensor:
        """`[batch, P]` booleans, which columns hold a positive."""
        return self.relevance > 0

    @abc.abstractmethod
    def item_relevance(self) -> Tensor | Callable:
        """Relevance `[batch, n]` for `items` of sums; a tensor only in `DenseLists`."""

    @abc.abstractmethod
    def dense(self) -> DenseLists:
        """The same lists with every score in memory; lists over all classes raise."""

    # Reductions over the items.

    @abc.abstractmethod
    def sum(
        self,
        function: Callable,
        *parameters: Tensor,
        items: Sequence = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> Tensor:
        """`sum_j function(score_j, *items_j, *parameters)`, `[batch]`.

        The gradient flows to the scores and the parameters, not to what the function
        captures.

        Args:
            function: works entry by entry.
            *parameters: `[batch, 1]` each.
            items: values by item, such as `item_relevance()`.
            tends_to_zero: whether the function tends to 0, with its slope, as the score
                falls; then a masked item needs no mask, which saves time.
            vanishes: whether the function is 0 up to some score, and never negative. Of
                very many items only those with a value above 0 may then take part in
                the gradient.
        """

    def sums(self, functions: Sequence[Function], *parameters: Tensor) -> list[Tensor]:
        """`sum` of each of the functions, which tend to zero, in one pass if it can."""
        return [self.sum(f, *parameters, tends_to_zero=True) for f in functions]

    @abc.abstractmethod
    def sum_over_items(
        self,
        function: Callable,
        items: Sequence = (),
        positives: Tensors = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> Tensor:
        """`sum_j function(score_j, *items_j, score_p, *positives_p)` per positive p.

        Time is O(P n), memory O(n). The positives and the result are `[batch, P]`; all
        else is as in `sum`.
        """

    def sum_over_differences(
        self, function: Callable, tends_to_zero: bool = False, vanishes: bool = False
    ) -> Tensor:
        """`sum_j function(score_j - score_p)` for each positive p, `[batch, P]`.

        See `sum`.
        """
        # The gradient of `s - p` would negate `[batch, n]` numbers for each positive.
        return self.sum_over_items(
            lambda s, p: function(s + -p), (), (), tends_to_zero, vanishes
        )

    @abc.abstractmethod
    def sum_of_violations(self, margin: float, levels: Tensor | None = None) -> Tensor:
        r"""$\sum_j (z_j - l_p + \eta)_+$ for each positive p, `[batch, P]`.

        The margin $\eta$ is > 0.

        Levels default to the positives' scores. Few take a pass each, many O(n log P)
        in all.
        """

    def violations(self, margin: float) -> TensorPair:
        """`sum_of_violations` and how many terms exceed 0, a constant, `[batch, P]`."""
        count = self.constant().sum_over_items(
            lambda s, p: tf.cast(s - p > -margin, s.dtype), tends_to_zero=True
        )
        return self.sum_of_violations(margin), count

    @abc.abstractmethod
    def log_sum_exp(
        self, temperature: Array = 1.0, smoothing: Array = 0.0
    ) -> TensorPair:
        r"""$\log \sum_j e^{(s_j - t) / T}$ and t, the highest score, `[batch, 1]`.

        The score t is a constant.

        Only score differences count; the nearer to 0 the scores, the more digits these
        have.

        Args:
            temperature: T, a number or a scalar tensor.
            smoothing: $\epsilon$; $\epsilon$ times the mean of the $(s_j - t) / T$ is
                subtracted.
        """

    @abc.abstractmethod
    def top_k(self, k: Array) -> tuple[Tensor, Tensor, Tensor]:
        """The k top scores, places for `only` and `without`, and how many are items.

        The scores `[batch, k]` fall; where a list has fewer items, they are far below
        all others. The places are `[batch, k]`, the numbers `[batch]` int32, at least
        1. k is at most n.
        """

    # Lists derived from these.

    @abc.abstractmethod
    def constant(self) -> Lists:
        """The same lists without gradients."""

    @abc.abstractmethod
    def scaled(self, factor: Array) -> Lists:
        """The same lists with scores times a factor > 0, a scalar or `[batch, 1]`."""

    @abc.abstractmethod
    def shifted(self, shift: Tensor) -> Lists:
        """The same lists with scores shifted by `[batch, 1]`, `[1, n]` or `[batch, n]`.

        Lists over all classes take `[1, n]` without a gradient, and no `[batch, n]`.
        """

    @abc.abstractmethod
    def negatives(self) -> Lists:
        """The same positives, against the items that are not positive."""

    @abc.abstractmethod
    def without(self, places: Tensor) -> Lists:
        """The same positives against items that are not at the places `[batch, k]`."""

    @abc.abstractmethod
    def only(self, places: Tensor) -> Lists:
        """The same positives against items at places `[batch, k]`; -1 means none."""

    # Sums over the positives, and NaN.

    def sum_of_positives(self, values: Tensor, factors: Tensor | None = None) -> Tensor:
        """Sum over positives of values `[batch, P]`, times their weights, `[batch]`.

        Factors, such as `relevance`, multiply the values and are 0 in columns without a
        positive.
        """
        if factors is None:
            values = zero_unless(self.is_positive, values)
        else:
            values = tf.math.multiply_no_nan(values, factors)
        if self.positive_weights is not None:
            values *= self.positive_weights
        return (
            tf.squeeze(values, 1)
            if self.max_positives == 1
            else tf.reduce_sum(values, axis=-1)
        )

    @abc.abstractmethod
    def keep_nan(self, losses: Tensor) -> Tensor:
        """Losses `[batch]`, NaN for a list with a NaN score, which sorting may hide."""
