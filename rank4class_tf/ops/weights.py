"""Label gains, rank discounts and weights, margin functions: by name or custom."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _keras, _registry
from rank4class_tf._lists.lists import LOWEST, Lists
from rank4class_tf._tf.exact import violation
from rank4class_tf._tf.search import first_and_last_ranks
from rank4class_tf._types import Array, Choice, Function, Tensor


def exponential_gain(relevance: Array) -> Tensor:
    """Gain `2**y - 1` of a label y."""
    relevance = tf.convert_to_tensor(relevance)
    # The integer part has a table of powers, so that integer labels have exact gains.
    # The first exponent whose power is infinite.
    overflow = math.frexp(relevance.dtype.max)[1]
    integer = tf.where(relevance > 0, tf.floor(tf.minimum(relevance, overflow)), 0)
    powers = tf.constant(np.append(2.0 ** np.arange(overflow), np.inf), relevance.dtype)
    power = tf.gather(powers, tf.cast(integer, tf.int32))
    fraction_gain = tf.math.expm1((relevance - integer) * np.log(2.0))
    return tf.where(tf.math.is_inf(power), power, power * fraction_gain + (power - 1))


def logarithmic_discount(rank: Array) -> Tensor:
    """Discount `1 / log2(1 + r)` of a rank r."""
    return np.log(2.0) / tf.math.log1p(tf.convert_to_tensor(rank))


GAINS: dict[str, Callable] = {
    "exponential": exponential_gain,
    "linear": lambda label: label,
}
DISCOUNTS: dict[str, Callable] = {
    "logarithmic": logarithmic_discount,
    "reciprocal": lambda rank: 1 / rank,
}


def get_gain(gain: Choice) -> Callable:
    """Returns the gain `"exponential"`, `"linear"` or a function of labels as it is."""
    return _registry.by_name("gain", GAINS, gain)


def get_discount(discount: Choice) -> Callable:
    """Returns the discount `"logarithmic"`, `"reciprocal"` or a function as it is."""
    return _registry.by_name("discount", DISCOUNTS, discount)


def gain_cancels(gain: Choice, relevance: Tensor) -> bool:
    """Whether the gain cancels in DCG / ideal DCG: the only positive has a gain > 0."""
    return relevance.shape[1] == 1 and gain in [*GAINS]  # A custom gain may be 0.


def gains_up_to_a_factor(gain: Choice, relevance: Tensor) -> Tensor:
    """Gains of labels `[batch, P]`, up to a factor of each list."""
    gain_of = relative_gain if gain == "exponential" else get_gain(gain)
    return gain_of(relevance)


def relative_gain(relevance: Tensor) -> Tensor:
    """`2**y - 1` of labels `[batch, P]`, kept finite by a factor of each list."""
    # The factor is 2**-excess: 1 if no label of the list is above 64.
    excess = tf.nn.relu(tf.reduce_max(relevance, axis=-1, keepdims=True) - 64)
    shifted = relevance - excess
    scaled_gains = tf.exp(shifted * np.log(2.0)) - tf.exp(-excess * np.log(2.0))
    gains = tf.where(excess > 0, scaled_gains, exponential_gain(shifted))
    return tf.where(relevance <= 0, tf.zeros_like(gains), gains)  # A NaN stays NaN.


def ideal_dcg(
    gains: Tensor, top_k: int | None = None, discount: Callable = logarithmic_discount
) -> Tensor:
    """DCG of gains `[batch, P]` in their best order, over the first `top_k` ranks."""
    best = tf.sort(gains, axis=-1, direction="DESCENDING")[:, :top_k]
    return discounted_sum(
        best, discount(tf.range(1, tf.shape(best)[1] + 1, dtype=gains.dtype))
    )


def discounted_sum(best_gains: Tensor, discounts: np.ndarray | Tensor) -> Tensor:
    """Sums gains `[batch, P]` in the order of ranks, times the discounts of these."""
    # Not by `tf.linalg.matvec`, whose products some devices round to bfloat16.
    width = best_gains.shape[1]
    if isinstance(discounts, np.ndarray):
        discounts = discounts.astype(best_gains.dtype.as_numpy_dtype)[:width]
    discounts = tf.cast(discounts, best_gains.dtype)
    if width is None or discounts.shape[0] != width:
        discounts = discounts[: tf.shape(best_gains)[1]]
    return tf.reduce_sum(best_gains * discounts, axis=-1)


# Below u = -80, exp(-u) continues as its tangent, which stays finite in float32.
_EXPONENTIAL_LIMIT = 80.0


def hinge(margins: Tensor) -> Tensor:
    r"""Hinge, $(1 - u)_+$."""
    return violation(-margins, 1.0)


def squared_hinge(margins: Tensor) -> Tensor:
    r"""Squared hinge, $(1 - u)_+^2$."""
    return tf.square(hinge(margins))


def logistic(margins: Tensor) -> Tensor:
    r"""Logistic, $\log_2(1 + e^{-u})$."""
    return tf.math.softplus(-margins) / np.log(2.0)


def exponential(margins: Tensor) -> Tensor:
    r"""Exponential, $e^{-u}$; below u = -80, its tangent."""
    excess = tf.nn.relu(-margins - _EXPONENTIAL_LIMIT)
    return tf.exp(-tf.maximum(margins, -_EXPONENTIAL_LIMIT)) * (1 + excess)


def _set(instance: object, **values: Any) -> None:
    # A frozen dataclass allows no assignment.
    for name, value in values.items():
        object.__setattr__(instance, name, value)


@_keras.register
@dataclasses.dataclass(frozen=True)
class Ramp(_registry.Configured):
    r"""Ramp, $1(u \le 0) + (1 - u / \rho) 1(0 < u \le \rho)$; bounded, so not convex.

    Args:
        width: $\rho$ > 0.
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        _set(self, width=_checks.positive_float("width", self.width))

    def __call__(self, margins: Tensor) -> Tensor:
        return 1 - tf.clip_by_value(margins / self.width, 0, 1)


@_keras.register
@dataclasses.dataclass(frozen=True)
class Scaled(_registry.Configured):
    r"""A margin function of scaled margins, $\varphi(s u)$.

    Scores of unit vectors lie in [-1, 1]: a binary hinge is then 0 only at 1, and a
    pairwise one only from a difference of 1 on. With the scale s, both are 0 from 1 / s
    on.

    Args:
        phi: the name of $\varphi$; see `get_phi`.
        scale: s > 0.

    Example:
        >>> Scaled("hinge", 4.0)(tf.constant([-0.5, 0.125, 0.25])).numpy()
        array([3. , 0.5, 0. ], dtype=float32)
    """

    phi: str
    scale: float

    def __post_init__(self) -> None:
        _checks.one_of("phi", self.phi, tuple(_BY_NAME))
        _set(self, scale=_checks.positive_float("scale", self.scale))

    def __call__(self, margins: Tensor) -> Tensor:
        return _BY_NAME[self.phi](self.scale * margins)


_BY_NAME: dict[str, Callable] = {
    "hinge": hinge,
    "squared_hinge": squared_hinge,
    "logistic": logistic,
    "exponential": exponential,
    "ramp": Ramp(),
}


def get_phi(phi: Choice) -> Callable:
    r"""Returns a margin function, by name or as is; 0 at a masked item's margin.

    Args:
        phi: `"hinge"`, `"squared_hinge"`, `"logistic"`, `"exponential"`, `"ramp"` (of
            width 1), a `Ramp`, a `Scaled`, or any elementwise function of margins. The
            bounds of the paper hold if it does not increase and is at least 1 where the
            margin is <= 0.
    """
    function = _registry.by_name("phi", _BY_NAME, phi)
    if function is not phi or isinstance(phi, Ramp | Scaled):
        return function

    def zero_if_masked(margins: Tensor) -> Tensor:
        # A masked item has the score LOWEST, and so a huge margin.
        unmasked = margins < -LOWEST[margins.dtype] / 4
        return tf.where(unmasked, phi(tf.where(unmasked, margins, 0)), 0)

    return zero_if_masked


class RankWeights(_registry.Configured):
    """Base: leading weights, then one constant weight for all the others.

    Leading weights need a search for the highest scores, the constant weight only a
    sum. A subclass sets `listed`, or overrides `leading` to compute any number of them.
    """

    listed: Sequence[float] | None = None  # The leading weights; None if all lead.
    tail: float = 0.0  # The weight of the others, >= 0.

    @property
    def num_leading(self) -> int | None:
        """The number of leading weights; None means all."""
        return None if self.listed is None else len(self.listed)

    def leading(self, n: int | Tensor, dtype: tf.DType) -> Tensor:
        """The first `n` weights, `[n]`, where n <= `num_leading`."""
        return tf.constant(self.listed, dtype)[:n]

    def first(self, n: int | Tensor, dtype: tf.DType) -> Tensor:
        """The first `n` weights, `[n]`: the leading ones, then `tail`."""
        if self.num_leading is None:
            return self.leading(n, dtype)
        num_leading = tf.minimum(n, self.num_leading)
        others = tf.fill([n - num_leading], tf.constant(self.tail, dtype))
        return tf.concat([self.leading(num_leading, dtype), others], axis=0)


@_keras.register
@dataclasses.dataclass(frozen=True)
class TopKWeights(RankWeights):
    r"""Equal weights of the k highest, $\theta_j = 1/k$ for $j \le k$.

    With them the ordered weighted loss bounds the top-k 0/1 loss. With a small `tail`
    it is calibrated as well, under the conditions of theorem 4.

    Source: Stochastic Negative Mining, theorem 3 and, for `tail`, theorem 4 and
    footnote 2.

    Args:
        k: positive integer.
        tail: weight >= 0 of all the others.

    Example:
        >>> TopKWeights(2, tail=0.1).first(3, tf.float32).numpy()
        array([0.5, 0.5, 0.1], dtype=float32)
    """

    k: int
    tail: float = 0.0

    def __post_init__(self) -> None:
        _set(
            self,
            k=_checks.positive_int("k", self.k),
            tail=_checked_weight("tail", self.tail),
        )

    @property
    def listed(self) -> Sequence[float]:  # type: ignore[override]
        return [1 / self.k] * self.k


@_keras.register
@dataclasses.dataclass(frozen=True)
class UniformWeights(RankWeights):
    r"""All weights 1, $\theta_j = 1$."""

    listed = ()
    tail = 1.0


@_keras.register
@dataclasses.dataclass(frozen=True)
class PowerLawWeights(RankWeights):
    r"""Weights that fall as a power, $\theta_j = j^{-a}$. They need all scores sorted.

    Source: Stochastic Negative Mining, section 3.1.

    Args:
        exponent: a > 0.
    """

    exponent: float = 1.0

    def __post_init__(self) -> None:
        _set(self, exponent=_checks.positive_float("exponent", self.exponent))

    def leading(self, n: int | Tensor, dtype: tf.DType) -> Tensor:
        return tf.cast(tf.range(1, n + 1), dtype) ** -self.exponent


@_keras.register
@dataclasses.dataclass(frozen=True)
class StaircaseWeights(RankWeights):
    r"""Weights that are constant over ranges of ranks.

    $\theta_j = w_i$ for $e_{i-1} < j \le e_i$, and $\theta_j$ = `tail` after the last.

    Args:
        steps: pairs $(e_i, w_i)$ with rising $e_i$.
        tail: weight >= 0 of all after the last step.

    Example:
        >>> StaircaseWeights([(1, 1.0), (3, 0.5)]).first(5, tf.float32).numpy()
        array([1. , 0.5, 0.5, 0. , 0. ], dtype=float32)
    """

    steps: Sequence
    tail: float = 0.0

    def __post_init__(self) -> None:
        rule = "`steps` must hold (end, weight) pairs with rising ends."
        try:
            pairs = [(end, weight) for end, weight in self.steps]
        except (TypeError, ValueError) as error:
            raise ValueError(f"{rule} Received: {self.steps!r}.") from error
        ends = [_checks.positive_int("steps", end) for end, _ in pairs]
        weights = [_checked_weight("steps", weight) for _, weight in pairs]
        _checks.require(
            bool(ends) and ends == sorted(set(ends)), rule, repr(self.steps)
        )
        steps = tuple(zip(ends, weights, strict=True))
        _set(self, steps=steps, tail=_checked_weight("tail", self.tail))

    @property
    def listed(self) -> Sequence[float]:  # type: ignore[override]
        ends, weights = zip(*self.steps, strict=True)
        return np.repeat(weights, np.diff(ends, prepend=0)).tolist()


@_keras.register
@dataclasses.dataclass(frozen=True)
class ListedWeights(RankWeights):
    r"""Weights from a list, 0 after the last.

    Args:
        values: finite numbers >= 0, at least one.
    """

    values: Sequence

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        rule = (
            "`rank_weights` must be a list of at least one number, or an object such as"
        )
        is_right = values.ndim == 1 and values.size > 0
        _checks.require(is_right, f"{rule} TopKWeights(k=5).", repr(self.values))
        _set(
            self,
            values=tuple(_checked_weight("rank_weights", x) for x in values.tolist()),
        )

    @property
    def listed(self) -> Sequence[float]:  # type: ignore[override]
        return self.values


def get_rank_weights(weights: RankWeights | Tensor) -> RankWeights:
    """Returns `weights` as a `RankWeights`; a list or array becomes `ListedWeights`."""
    return weights if isinstance(weights, RankWeights) else ListedWeights(weights)


def _checked_weight(name: str, value: Any) -> float:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    is_right = is_number and np.isfinite(value) and value >= 0
    _checks.require(is_right, f"`{name}` must hold finite numbers >= 0.", repr(value))
    return float(value)


class Side(NamedTuple):
    """One side of all pairs: the items `[batch, n]`, or the positives `[batch, P]`."""

    score: Tensor
    relevance: Tensor
    gain: Tensor
    rank: Tensor


class PairWeights(NamedTuple):
    """What the weights of pairs of an item and a positive depend on."""

    items: Side
    positives: Side
    weight: Function  # Of a side of items and one of positives that broadcast.


@_keras.register
@dataclasses.dataclass(frozen=True)
class NDCGLambdaWeights(_registry.Configured):
    r"""Weights of LambdaLoss and LambdaMART, for the pairwise losses.

    $$w_{ij} = n \, \frac{|g_i - g_j|}{\mathrm{idealDCG@}k} \left(
    (1 - f) \left|d(|r_i - r_j|) - d(|r_i - r_j| + 1)\right|
    + f \left|d(r_i) - d(r_j)\right|
    \right)$$

    with the gain $g = 2^y - 1$, the discount $d(r) = 1 / \log_2(1 + r)$, the exact
    ranks $r$ and the n items of the list. Pairs with no item among the first k weigh 0,
    and in the second term d is 0 beyond rank k. Weights have no gradient. Ties count
    against the model: the more relevant item of a pair ranks last among its ties, the
    less relevant one first.

    Source: Wang et al. 2018, "The LambdaLoss framework"; Burges 2010 (LambdaMART) for f
    = 1.

    Args:
        top_k: k, or None for no cutoff.
        smooth_fraction: f, in [0, 1].

    Example:
        >>> weights = NDCGLambdaWeights(smooth_fraction=1.0)
        >>> from rank4class_tf.losses import PairwiseLogisticLoss
        >>> float(PairwiseLogisticLoss(lambda_weights=weights)([1], [[0.0, 0.0]]))
        0.5116...
    """

    top_k: int | None = None
    smooth_fraction: float = 0.0

    def __post_init__(self) -> None:
        _checks.positive_int_or_none("top_k", self.top_k)
        _checks.fraction("smooth_fraction", self.smooth_fraction)

    def __call__(self, lists: Lists) -> PairWeights:
        """The weights of pairs of an item j and a positive i."""
        top_k = self.top_k
        fraction = self.smooth_fraction
        lists = lists.dense()
        # They differ where tied.
        first_ranks, last_ranks = first_and_last_ranks(-lists.filled)
        # The factor of a list cancels between its gains and its ideal DCG.
        positive_gains = relative_gain(lists.relevance)
        ideal = ideal_dcg(positive_gains, top_k)[:, tf.newaxis]
        positive_gains *= tf.math.divide_no_nan(lists.num_items[:, tf.newaxis], ideal)

        def discount_up_to_k(rank: Tensor) -> Tensor:
            discount = logarithmic_discount(rank)
            return discount if top_k is None else tf.where(rank <= top_k, discount, 0)

        def pair_weight(j: Side, i: Side) -> Tensor:
            distance = tf.abs(i.rank - j.rank)
            # d(r) - d(r + 1), without subtracting nearly equal numbers.
            r = tf.maximum(distance, 1)
            logs = tf.math.log1p(r) * tf.math.log1p(r + 1)
            relative = np.log(2.0) * tf.math.log1p(1 / (1 + r)) / logs
            relative = tf.where(distance > 0, relative, 0)
            absolute = tf.abs(discount_up_to_k(i.rank) - discount_up_to_k(j.rank))
            weight = (i.gain - j.gain) * (
                (1 - fraction) * relative + fraction * absolute
            )
            if top_k is not None:
                weight = tf.where(tf.minimum(i.rank, j.rank) <= top_k, weight, 0)
            return tf.stop_gradient(weight)

        items = Side(
            score=lists.filled,
            relevance=lists.item_relevance(),
            gain=lists.by_item(positive_gains),
            rank=tf.cast(first_ranks, lists.dtype),
        )
        positives = Side(
            score=lists.positive_scores,
            relevance=lists.relevance,
            gain=positive_gains,
            rank=tf.cast(lists.at_positives(last_ranks), lists.dtype),
        )
        return PairWeights(items, positives, pair_weight)
