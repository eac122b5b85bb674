"""Projections on the simplex, and regularizers, which search for their thresholds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._lists.dense import DenseLists, as_lists
from rank4class_tf._lists.lists import Lists
from rank4class_tf._lists.positives import SHORT
from rank4class_tf._tf import raising
from rank4class_tf._tf.exact import as_dtype, violation
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.loops import fold
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import Array, Tensor, TensorPair, Tensors, WithGradient


def cap(top: Tensor, tail: Tensor, k: int | Tensor) -> TensorPair:
    r"""$D - P_t$ and t of $w = (D - P_t) / (k - t)$ with $\sum_i \min(1, d_i / w) = k$.

    D is the sum of all $d_i$, $P_t$ that of the t largest, which are cut, and
    $t = \min \{ t : (k - t) \, d_{[t+1]} \le D - P_t \}$. The largest, `top`
    `[..., K]`, are positive and fall; `tail` `[...]` is the sum of the others. k <= K
    is an int or like `tail`.

    Source: Rankmax, Proposition 3.
    """
    # Sums run from the smallest up, so that a large d_1 costs no digits.
    rest = tail[..., tf.newaxis] + tf.cumsum(top, axis=-1, reverse=True)
    num_cut = tf.range(top.shape[-1], dtype=top.dtype)
    left = tf.cast(k, top.dtype)[..., tf.newaxis] - num_cut
    # Not `<=`, so that a NaN is cut first and shows.
    can_end = tf.cast(~(left * top > rest), tf.int32)
    cut = tf.argmax(can_end, axis=-1, output_type=tf.int32)
    return tf.gather(rest, cut, batch_dims=cut.shape.rank), cut


def euclidean_projection(
    scores: Array, k: int = 1, alpha: float | Tensor = 1.0, mask: Array | None = None
) -> Tensor:
    r"""Euclidean projection on the (n, k)-simplex.

    $$x_i = \min(1, \max(0, \alpha (z_i - \mu))), \qquad \textstyle\sum_i x_i = k$$

    Sparsemax is k = 1, $\alpha$ = 1. The arguments and the result are those of
    `simplex_projection`. The Jacobian is exact: with F the items with $0 < x_i < 1$,
    $J v = \alpha \, 1_F (v - \mathrm{mean}_F v)$.

    Source: Rankmax, equation 8.

    Example:
        >>> euclidean_projection([[2.0, 1.5, 0.0]]).numpy()  # mu = 1.25
        array([[0.75, 0.25, 0.  ]], dtype=float32)
    """
    return simplex_projection(scores, "euclidean", k, alpha, mask)


def entropy_projection(
    scores: Array, k: int = 1, alpha: float | Tensor = 1.0, mask: Array | None = None
) -> Tensor:
    r"""Entropy projection on the (n, k)-simplex.

    $$x_i = \min(1, e^{\alpha z_i} / Z), \qquad \textstyle\sum_i x_i = k$$

    Softmax is k = 1. The arguments and the result are those of `simplex_projection`.
    The Jacobian is exact: with F the items with $x_i < 1$,
    $J v = \alpha \, x \, 1_F (v - \sum_F x_j v_j / \sum_F x_j)$.

    Source: Rankmax, section 2.2.

    Example:
        >>> entropy_projection([[9.0, 0.0, 0.0]], k=2).numpy()
        array([[1. , 0.5, 0.5]], dtype=float32)
    """
    return simplex_projection(scores, "entropy", k, alpha, mask)


def simplex_projection(
    scores: Array,
    regularizer: str | Regularizer,
    k: int = 1,
    alpha: float | Tensor = 1.0,
    mask: Array | None = None,
) -> Tensor:
    r"""Projection on the (n, k)-simplex for any regulariser $g(x) = \sum_i h(x_i)$.

    $$x_i = \min(1, \max(0, (h')^{-1}(\alpha (z_i - \mu)))), \qquad
    \textstyle\sum_i x_i = k$$

    The result is `[batch, n]`. First derivatives are exact.

    Source: Rankmax, Theorem 2(b).

    Args:
        scores: `[batch, n]`; -inf masks an item.
        regularizer: `"euclidean"`, `"entropy"` or a `Regularizer`, such as your own.
        k: number of items to select, in [1, n]; a list of fewer items selects all of
            them.
        alpha: > 0, a scalar or `[batch]`; the larger, the closer to the k largest.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.

    Example:
        >>> simplex_projection([[2.0, 1.5, 0.0]], "euclidean").numpy()  # mu = 1.25
        array([[0.75, 0.25, 0.  ]], dtype=float32)
    """
    _checks.positive_int("k", k)
    _checks.positive_or_tensor("alpha", alpha)
    regularizer = get_regularizer(regularizer)
    scaled = scaled_by(as_lists(scores, mask=mask), alpha)
    lists, highest = from_kth(scaled, k, regularizer)
    total = tf.cast(highest.selected, lists.dtype)[:, tf.newaxis]
    threshold = tf.stop_gradient(regularizer.threshold(lists, highest))

    def surplus_at(threshold: Tensor) -> Tensor:
        return lists.sum(regularizer.project, threshold)[:, tf.newaxis] - total

    with tf.GradientTape() as tape:
        tape.watch(threshold)
        surplus = surplus_at(threshold)
    slope = -tape.gradient(surplus, threshold)

    @tf.custom_gradient
    def newton_step(surplus: Tensor) -> WithGradient:
        # The surplus is 0 already: the step only gives the threshold its derivative.
        # Only gradients read the slope, which TFLite and ONNX cannot express in a graph
        # for inference.
        def gradient(upstream: Tensor) -> Tensor:
            return tf.math.divide_no_nan(upstream, slope)

        return tf.zeros_like(surplus), gradient

    threshold += newton_step(surplus)
    lists = lists.dense()
    return tf.where(lists.mask, regularizer.project(lists.scores, threshold), 0)


def scaled_by(lists: Lists, alpha: float | Tensor) -> Lists:
    """The lists with scores times alpha, a scalar or `[batch]`."""
    if isinstance(alpha, float | int) and alpha == 1:
        return lists
    alpha = as_dtype(alpha, lists.dtype)
    if alpha.shape.rank == 0:
        return lists.scaled(alpha)
    rule = "`alpha` must be a number or have one for each list."
    return lists.scaled(same_sizes(alpha, lists.positive_scores, rule)[:, tf.newaxis])


class Highest(NamedTuple):
    """The highest scores of lists, from which a regulariser finds its threshold."""

    scores: Tensor  # `[batch, m]`, falling, m >= k; 0 is the k-th.
    columns: Tensor  # `[batch, m]`.
    k: int
    selected: Tensor  # `[batch]` int32, how many items to select, at most k.


def from_kth(
    lists: Lists, k: int, regularizer: Regularizer, limit: Tensor | None = None
) -> tuple[Lists, Highest]:
    """Lists minus their k-th highest score, and the highest that a threshold needs."""
    # The k-th highest is a constant, so that scores near it keep their digits. So are
    # all that a threshold needs. The number to select is at most `limit`, and at most
    # the number of items.
    top, columns, found = lists.top_k(regularizer.num_highest(lists, k))
    selected = tf.minimum(found, k)
    if limit is not None:
        selected = tf.minimum(selected, limit)
    top = tf.stop_gradient(top)
    kth = tf.gather(top, selected[:, tf.newaxis] - 1, batch_dims=1)
    return lists.shifted(-kth), Highest(top - kth, columns, k, selected)


def rankmax(
    scores: Array,
    class_ids: Array | None = None,
    k: int = 1,
    margin: float = 1.0,
    mask: Array | None = None,
) -> Tensor:
    r"""The Rankmax projection of the scores for each label, `[batch, P, n]`.

    $$x_i = \min(1, \max(0, \alpha_y (z_i - \mu_y))), \qquad
    \mu_y = \min(z_y, z_{[k]}) - \eta$$

    with $\alpha_y$ such that $\sum_i x_i = k$.

    Source: Rankmax, Definition 4, with margin $\eta$.

    Args:
        scores: `[batch, n]`, or `Lists`, which hold the labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, the labels; -1 gives zeros.
        k: number of items to select, in [1, n]; a list of fewer items selects all of
            them.
        margin: $\eta$ > 0.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.

    Example:
        >>> rankmax(
        ...     [[1.0, 0.5, 0.0]], [[0]]
        ... ).numpy()  # 1 and 1/2 above 1 - 1, over their sum
        array([[[0.6666667 , 0.33333334, 0.        ]]], dtype=float32)
    """
    _checks.positive_int("k", k)
    _checks.positive_or_tensor("margin", margin)
    lists = as_lists(scores, class_ids, mask=mask)
    level, top, columns, selected = lowest_in_support(lists, k)
    level = level[..., tf.newaxis]
    above = violation(lists.dense().filled[:, tf.newaxis] - level, margin)
    is_top = columns[..., tf.newaxis] == tf.range(lists.max_items)
    is_top = tf.reduce_any(is_top, axis=1, keepdims=True)
    tail = tf.reduce_sum(tf.where(is_top, tf.zeros([], lists.dtype), above), axis=-1)
    top = violation(top[:, tf.newaxis] - level, margin)
    rest, cut = cap(top, tail, selected[:, tf.newaxis])
    width = rest / tf.cast(selected[:, tf.newaxis] - cut, lists.dtype)
    projection = tf.minimum(above / width[..., tf.newaxis], 1)
    return tf.where(lists.is_positive[..., tf.newaxis], projection, 0)


def lowest_in_support(lists: Lists, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Positives' $\min(z_y, z_{[k]})$; top k, their columns, how many to select."""
    # The support ends a margin below this minimum.
    top, columns, selected = lists.top_k(k)
    kth = gather(top, selected[:, tf.newaxis] - 1)
    return tf.minimum(lists.positive_scores, kth), top, columns, selected


# More steps than bisection needs in float64; Newton's method takes about five.
_MAX_STEPS = 64


class Regularizer(_registry.Configured):
    r"""A separable regulariser; make your own from two functions, or as a subclass.

    Args:
        inverse_derivative: $(h')^{-1}$, an increasing, differentiable function of
            tensors of any real numbers, whose values cover (0, 1).
        value: h, a function of tensors in [0, 1]; only losses need it.

    Example:
        >>> half = Regularizer(
        ...     lambda u: 2 * u, lambda x: x**2 / 4
        ... )  # (h')^{-1}(u) = 2 u
        >>> from rank4class_tf import ops
        >>> ops.simplex_projection([[2.0, 1.5, 0.0]], half).numpy().round(6)
        array([[1., 0., 0.]], dtype=float32)
    """

    # Whether `project` and `conjugate` tend to 0 as the score falls; whether
    # `conjugate` is 0 up to some score, and nowhere negative.
    tends_to_zero = vanishes = False

    def __init__(self, inverse_derivative: Callable, value: Callable | None = None):
        self._inverse_derivative = inverse_derivative
        self._value = value

    def get_config(self) -> dict:
        # Not the two functions.
        return _registry.constructor_arguments(self, type(self))

    def inverse_derivative(self, u: Tensor) -> Tensor:
        """$(h')^{-1}(u)$."""
        return self._inverse_derivative(u)

    def value(self, x: Tensor) -> Tensor:
        """h(x)."""
        if self._value is None:
            raise ValueError(
                "`value` of the regularizer must be given for a loss. Received: None."
            )
        return self._value(x)

    def project(self, scores: Tensor, threshold: Tensor) -> Tensor:
        """An item's share of the projection at a threshold."""
        raw = scores - threshold
        x = self.inverse_derivative(raw)
        # A cut x may have overflowed, so its slope must not count.
        is_free = (x > 0) & (x < 1)
        free = self.inverse_derivative(tf.where(is_free, raw, 0))
        return tf.where(is_free, free, tf.clip_by_value(tf.stop_gradient(x), 0, 1))

    def conjugate(self, scores: Tensor, threshold: Tensor) -> Tensor:
        r"""$\max_{0 \le x \le 1} x u - h(x)$ of an item at a threshold.

        Its slope is `project`.
        """

        @tf.custom_gradient
        def value(u: Tensor) -> WithGradient:
            x = self.project(u, tf.zeros([], u.dtype))
            value = tf.where(x == 0, tf.zeros_like(x), x * u) - self.value(x)
            return value, lambda upstream: upstream * x

        return value(scores - threshold)

    def num_highest(self, lists: Lists, k: int) -> int:
        """How many of the highest scores `threshold` reads, at least k."""
        return k

    def threshold(self, lists: Lists, highest: Highest) -> Tensor:
        """The threshold `[batch, 1]` at which shares sum to what to select."""
        total = tf.cast(highest.selected, lists.dtype)[:, tf.newaxis]

        def is_enough(threshold: Tensor) -> Tensor:
            return lists.sum(self.project, threshold)[:, tf.newaxis] >= total

        # Steps that double bracket the threshold, then halving narrows the bracket.
        def widen(low: Tensor, high: Tensor, step: Tensor) -> Tensors:
            low = tf.where(is_enough(low), low, low - step)
            high = tf.where(is_enough(high), high + step, high)
            return low, high, step * 2

        def is_open(low: Tensor, high: Tensor, _: Tensor) -> Tensor:
            return ~tf.reduce_all(is_enough(low) & ~is_enough(high))

        zero = tf.zeros_like(total)
        start = (zero - 1, zero + 1, tf.ones([], total.dtype))
        low, high, _ = tf.while_loop(is_open, widen, start, maximum_iterations=100)

        def halve(_: Tensor, low: Tensor, high: Tensor) -> TensorPair:
            middle = (low + high) / 2
            is_low = is_enough(middle)
            return tf.where(is_low, middle, low), tf.where(is_low, high, middle)

        low, high = fold(halve, _MAX_STEPS, (low, high))
        return (low + high) / 2


# How many of the highest items Sparsemax tries first, which may save it passes over
# all. If few are in the support, as in a trained model, 15 is faster than 31 and 63 (64
# x 1,000). Over 20,000 classes by blocks, where a pass takes long, 63 takes a third of
# the time.
_TRIED, _TRIED_BY_BLOCKS = 15, 63


class _Euclidean(Regularizer):
    r"""$h(x) = x^2 / 2$."""

    tends_to_zero = vanishes = True

    def __init__(self) -> None:
        super().__init__(lambda u: u, lambda x: x * x / 2)

    def project(self, scores: Tensor, threshold: Tensor) -> Tensor:
        return tf.clip_by_value(scores - threshold, 0, 1)

    def conjugate(self, scores: Tensor, threshold: Tensor) -> Tensor:
        # Five operations over all items fewer than that of any regularizer.
        u = scores - threshold
        x = tf.clip_by_value(u, 0, 1)
        return x * tf.nn.relu(u) - self.value(x)

    def num_highest(self, lists: Lists, k: int) -> int:
        n = lists.max_items
        if not isinstance(n, int):
            return k
        if k == 1 and n <= SHORT and not raising.in_xla():
            return n
        tried = _TRIED if isinstance(lists, DenseLists) else _TRIED_BY_BLOCKS
        return k + tried if n > 2 * (k + tried) else k

    def threshold(self, lists: Lists, highest: Highest) -> Tensor:
        k = highest.k
        n = lists.max_items
        num_highest = highest.scores.shape[1]
        if k == 1 and isinstance(n, int) and n == num_highest:
            return _threshold_by_sorting(highest.scores)
        total = tf.cast(highest.selected, lists.dtype)[:, tf.newaxis]
        lowest = -tf.ones_like(total)
        if num_highest == k:
            return self._newton(lists, total, lowest)

        # Few items are usually above the threshold. The threshold of only the highest
        # items is a lower bound, and the right one if no other item is above it.
        if k == 1:  # Over blocks of classes the highest is 0 but for a rounding error.
            bound = tf.clip_by_value(_threshold_by_sorting(highest.scores), -1, 0)
        else:
            bound = self._newton(lists.only(highest.columns), total, lowest)
        is_done = highest.scores[:, -1:] <= bound
        if k == 1 and isinstance(lists, DenseLists) and not raising.in_xla():
            return _threshold_by_passes(lists.filled, bound, is_done)
        return self._newton(lists, total, bound, is_done)

    def _newton(
        self, lists: Lists, total: Tensor, low: Tensor, is_done: Tensor | bool = False
    ) -> Tensor:
        r"""The $\tau$ in [low, 0] for $\sum_i \min(1, \max(0, z_i - \tau))$ = total."""
        # Newton's method inside a bracket that bisection narrows; for k = 1, Michelot's
        # iteration.
        resolution = 2 * np.finfo(lists.dtype.as_numpy_dtype).eps

        def is_free(s: Tensor, t: Tensor) -> Tensor:
            return tf.cast((s > t) & (s < t + 1), s.dtype)

        def newton(threshold: Tensor) -> TensorPair:
            shares, slope = lists.sums([self.project, is_free], threshold)
            surplus = shares[:, tf.newaxis] - total
            slope = slope[:, tf.newaxis]
            return surplus, threshold + surplus / tf.maximum(slope, 1)

        def step(
            low: Tensor, high: Tensor, threshold: Tensor, is_done: Tensor
        ) -> Tensors:
            surplus, next_threshold = newton(threshold)
            low = tf.where(surplus >= 0, threshold, low)
            high = tf.where(surplus <= 0, threshold, high)
            # If the slope is 0, the surplus is a whole number, so the step leaves the
            # bracket.
            is_outside = (next_threshold <= low) | (next_threshold >= high)
            next_threshold = tf.where(is_outside, (low + high) / 2, next_threshold)
            next_threshold = tf.where(is_done, threshold, next_threshold)
            # A NaN counts as done, so that it does not keep the others waiting.
            change = tf.abs(next_threshold - threshold)
            is_done |= (change <= resolution) | tf.math.is_nan(change)
            return low, high, next_threshold, is_done

        start = (low, tf.zeros_like(low), low, tf.zeros_like(low, tf.bool) | is_done)
        _, _, threshold, _ = tf.while_loop(
            lambda *state: ~tf.reduce_all(state[3]),
            step,
            start,
            maximum_iterations=_MAX_STEPS,
        )
        # The error of a threshold counts once for each free item.
        return newton(threshold)[1]


class _Entropy(Regularizer):
    r"""$h(x) = x \log x$."""

    tends_to_zero = True

    def __init__(self) -> None:
        super().__init__(lambda u: tf.exp(u - 1), lambda x: tf.math.xlogy(x, x))

    def project(self, scores: Tensor, threshold: Tensor) -> Tensor:
        return tf.exp(tf.minimum(scores - threshold - 1, 0))

    def conjugate(self, scores: Tensor, threshold: Tensor) -> Tensor:
        u = scores - threshold - 1
        return tf.exp(tf.minimum(u, 0)) + tf.nn.relu(u)

    def threshold(self, lists: Lists, highest: Highest) -> Tensor:
        selected = highest.selected
        n = tf.cast(lists.max_items, lists.dtype)
        # Any item whose power is above n + 1 times the k-th is cut; how far above does
        # not matter.
        ceiling = tf.math.log(2 * n + 2)
        powers = lists.sum(lambda s: tf.minimum(tf.exp(s), 1), tends_to_zero=True)
        top_powers = tf.exp(tf.minimum(highest.scores, ceiling))
        powers_of_top = tf.reduce_sum(tf.minimum(top_powers, 1), axis=-1)
        other_powers = tf.nn.relu(powers - powers_of_top)
        rest, cut = cap(top_powers, other_powers, selected)
        scale = rest / tf.cast(selected - cut, lists.dtype)
        return tf.math.log(scale)[:, tf.newaxis] - 1


def _threshold_by_sorting(scores: Tensor) -> Tensor:
    r"""The $\tau$ with $\sum_i \max(0, z_i - \tau) = 1$ of scores falling from 0."""
    # Algorithm 1 of Martins & Astudillo 2016. In the loss of 32 lists of 28 to 100
    # items it takes a third of the time of Newton's method.
    scores = tf.maximum(scores, -2)  # Those below -1 are no part of the sum.
    counts = np.arange(1.0, scores.shape[1] + 1)
    thresholds = (tf.cumsum(scores, axis=1) - 1) / counts
    # The thresholds of the first i scores rise as long as the scores are above them.
    return tf.reduce_max(thresholds, axis=1, keepdims=True)


def _threshold_by_passes(scores: Tensor, bound: Tensor, is_done: Tensor) -> Tensor:
    """As `_threshold_by_sorting`, of scores `[batch, n]`, above bounds `[batch, 1]`."""
    # Michelot's iteration, which rises to the threshold, of only the lists that need
    # it. It takes half the time of Newton's method in a bracket (256 x 10,000 scores of
    # one size).
    resolution = 2 * np.finfo(scores.dtype.as_numpy_dtype).eps

    def risen(scores: Tensor, threshold: Tensor) -> Tensor:
        total = tf.reduce_sum(tf.nn.relu(scores - threshold), axis=1, keepdims=True)
        is_above = tf.cast(scores > threshold, tf.int32)
        count = tf.reduce_sum(is_above, axis=1, keepdims=True)
        return threshold + (total - 1) / tf.cast(tf.maximum(count, 1), scores.dtype)

    rest = tf.where(~is_done)[:, 0]
    scores_of_rest = tf.gather(scores, rest)

    def step(threshold: Tensor, _: Tensor) -> TensorPair:
        following = risen(scores_of_rest, threshold)
        return following, tf.reduce_any(following - threshold > resolution)

    start = tf.gather(bound, rest), tf.constant(True)
    found, _ = tf.while_loop(
        lambda _, rises: rises, step, start, maximum_iterations=_MAX_STEPS
    )
    bound = tf.tensor_scatter_nd_update(bound, rest[:, tf.newaxis], found)
    return risen(scores, bound)


REGULARIZERS = {"euclidean": _Euclidean(), "entropy": _Entropy()}


def get_regularizer(regularizer: str | Regularizer) -> Regularizer:
    """Returns the regulariser `"euclidean"`, `"entropy"` or a `Regularizer` as is."""
    is_known = isinstance(regularizer, Regularizer)
    return _registry.by_name(
        "regularizer", REGULARIZERS, regularizer, is_known, "a `Regularizer`"
    )
