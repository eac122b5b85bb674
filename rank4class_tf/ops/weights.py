"""Gains of labels, discounts and weights of ranks, functions of margins: by name, or a user's."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _keras, _registry
from rank4class_tf._lists.lists import LOWEST, Lists
from rank4class_tf._tf.exact import violation
from rank4class_tf._tf.search import first_and_last_ranks
from rank4class_tf._types import Array, Choice, Tensor


def exponential_gain(relevance: Array) -> Tensor:
    """Gain `2**y - 1` of a label y."""
    relevance = tf.convert_to_tensor(relevance)
    # We treat the whole part and the rest separately, so that whole labels have exact gains.
    limit = math.frexp(relevance.dtype.max)[1]
    whole = tf.where(relevance > 0, tf.floor(tf.minimum(relevance, limit)), 0)
    powers = tf.constant(np.append(2.0 ** np.arange(limit), np.inf), relevance.dtype)
    power = tf.gather(powers, tf.cast(whole, tf.int32))
    rest = tf.math.expm1((relevance - whole) * np.log(2.0))
    return tf.where(tf.math.is_inf(power), power, power * rest + (power - 1))


def logarithmic_discount(rank: Array) -> Tensor:
    """Discount `1 / log2(1 + r)` of a rank r."""
    return np.log(2.0) / tf.math.log1p(tf.convert_to_tensor(rank))


GAINS: dict[str, Callable] = {"exponential": exponential_gain, "linear": lambda label: label}
DISCOUNTS: dict[str, Callable] = {
    "logarithmic": logarithmic_discount,
    "reciprocal": lambda rank: 1 / rank,
}


def get_gain(gain: Choice) -> Callable:
    """Returns the gain `"exponential"` or `"linear"`, or a function of labels as it is."""
    return _registry.by_name("gain", GAINS, gain)


def get_discount(discount: Choice) -> Callable:
    """Returns the discount `"logarithmic"` or `"reciprocal"`, or a function of ranks as it is."""
    return _registry.by_name("discount", DISCOUNTS, discount)


def gain_cancels(gain: Choice, relevance: Tensor) -> bool:
    """Whether the gain cancels in a ratio of sums: the only positive has a gain > 0."""
    return relevance.shape[1] == 1 and gain in [*GAINS]


def gains_up_to_a_factor(gain: Choice, relevance: Tensor) -> Tensor:
    """Gains of labels `[batch, P]`, each list's up to a factor."""
    return relative_gain(relevance) if gain == "exponential" else get_gain(gain)(relevance)


def relative_gain(relevance: Tensor) -> Tensor:
    """`2**y - 1` of labels `[batch, P]`, up to a factor of each list that keeps it finite."""
    # A list whose labels are at most 64 has the factor 1.
    excess = tf.nn.relu(tf.reduce_max(relevance, axis=-1, keepdims=True) - 64)
    scaled = relevance - excess
    far = tf.exp(scaled * np.log(2.0)) - tf.exp(-excess * np.log(2.0))
    gains = tf.where(excess > 0, far, exponential_gain(scaled))
    return tf.where(relevance <= 0, tf.zeros_like(gains), gains)  # A NaN stays NaN.


def ideal_dcg(
    gains: Tensor, top_k: int | None = None, discount: Callable = logarithmic_discount
) -> Tensor:
    """Gains `[batch, P]` in their best order, discounted, over the first `top_k` ranks."""
    best = tf.sort(gains, axis=-1, direction="DESCENDING")[:, :top_k]
    return discounted_sum(best, discount(tf.range(1, tf.shape(best)[1] + 1, dtype=gains.dtype)))


def discounted_sum(best_gains: Tensor, table: np.ndarray | Tensor) -> Tensor:
    """Sums gains `[batch, P]` in the order of their ranks, times a table of discounts."""
    # Not a product of matrices, which some devices round to bfloat16.
    width = best_gains.shape[1]
    if isinstance(table, np.ndarray):
        table = table.astype(best_gains.dtype.as_numpy_dtype)[:width]
    table = tf.cast(table, best_gains.dtype)
    if width is None or table.shape[0] != width:
        table = table[: tf.shape(best_gains)[1]]
    return tf.reduce_sum(best_gains * table, axis=-1)


# Beyond this limit the tangent continues exp(-u), so that it stays finite in float32.
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
    r"""Exponential, $e^{-u}$; below u = -80 its tangent continues it."""
    excess = tf.nn.relu(-margins - _EXPONENTIAL_LIMIT)
    return tf.exp(-tf.maximum(margins, -_EXPONENTIAL_LIMIT)) * (1 + excess)


def _set(instance: object, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(instance, name, value)


@_keras.register
@dataclasses.dataclass(frozen=True)
class Ramp(_registry.Configured):
    r"""Ramp, $1(u \le 0) + (1 - u / \rho) 1(0 < u \le \rho)$; bounded, hence not convex.

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

    Scores of unit vectors lie in [-1, 1], where a binary hinge never acts, and a pairwise one only
    beyond a difference of 1; at the scale s they act at 1 / s.

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
    r"""Returns a margin function by name, which is 0 at the margin of a masked item.

    Args:
        phi: `"hinge"`, `"squared_hinge"`, `"logistic"`, `"exponential"`, `"ramp"` (of width 1), a
            `Ramp`, a `Scaled`, or any elementwise function of margins. The bounds of the paper hold
            if it does not increase and is at least 1 where the margin is <= 0.
    """
    function = _registry.by_name("phi", _BY_NAME, phi)
    if function is not phi or isinstance(phi, Ramp | Scaled):
        return function

    def without_masked(margins: Tensor) -> Tensor:
        near = margins < -LOWEST[margins.dtype] / 4
        return tf.where(near, phi(tf.where(near, margins, 0)), 0)

    return without_masked


class RankWeights(_registry.Configured):
    """Base: leading weights, then one constant weight for all the others.

    Leading weights cost a search for the highest scores, the constant one only a sum. A subclass
    lists them, or computes as many as are asked for in `leading`.
    """

    listed: Sequence[float] | None = None  # The leading weights; None if any number leads.
    tail: float = 0.0  # The weight of the others, >= 0.

    @property
    def num_leading(self) -> int | None:
        """The number of leading weights; None means all."""
        return None if self.listed is None else len(self.listed)

    def leading(self, n: int | Tensor, dtype: tf.DType) -> Tensor:
        """The first `n` weights, `[n]`, where n <= `num_leading`."""
        return tf.constant(self.listed, dtype)[:n]

    def first(self, n: int | Tensor, dtype: tf.DType) -> Tensor:
        """The first `n` weights, `[n]`, leading and constant ones."""
        if self.num_leading is None:
            return self.leading(n, dtype)
        count = tf.minimum(n, self.num_leading)
        rest = tf.fill([n - count], tf.constant(self.tail, dtype))
        return tf.concat([self.leading(count, dtype), rest], axis=0)


@_keras.register
@dataclasses.dataclass(frozen=True)
class TopKWeights(RankWeights):
    r"""Equal weights of the k highest, $\theta_j = 1/k$ for $j \le k$.

    The ordered weighted loss bounds the 0/1 loss of the k best. With a small `tail` it is
    calibrated as well, under the conditions of theorem 4.

    Source: Stochastic Negative Mining, theorem 3 and, for `tail`, theorem 4 and footnote 2.

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
        _set(self, k=_checks.positive_int("k", self.k), tail=_weight("tail", self.tail))

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
        check = _checks.positive_int
        steps = tuple((check("steps", end), _weight("steps", weight)) for end, weight in pairs)
        ends = [end for end, _ in steps]
        _checks.require(bool(ends) and ends == sorted(set(ends)), rule, repr(self.steps))
        _set(self, steps=steps, tail=_weight("tail", self.tail))

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
        rule = "`rank_weights` must be a list of at least one number, or an object such as"
        is_right = values.ndim == 1 and values.size > 0
        _checks.require(is_right, f"{rule} TopKWeights(k=5).", repr(self.values))
        _set(self, values=tuple(_weight("rank_weights", value) for value in values.tolist()))

    @property
    def listed(self) -> Sequence[float]:  # type: ignore[override]
        return self.values


def get_rank_weights(weights: RankWeights | Tensor) -> RankWeights:
    """Returns `weights` as a `RankWeights`; a list or an array becomes `ListedWeights`."""
    return weights if isinstance(weights, RankWeights) else ListedWeights(weights)


def _weight(name: str, value: Any) -> float:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    is_right = is_number and np.isfinite(value) and value >= 0
    _checks.require(is_right, f"`{name}` must hold finite numbers >= 0.", repr(value))
    return float(value)


@_keras.register
@dataclasses.dataclass(frozen=True)
class NDCGLambdaWeights(_registry.Configured):
    r"""Weights of LambdaLoss and LambdaMART, for the pairwise losses.

    $$w_{ij} = n \, \frac{|g_i - g_j|}{\mathrm{idealDCG@}k} \left(
    (1 - f) \left|d(|r_i - r_j|) - d(|r_i - r_j| + 1)\right| + f \left|d(r_i) - d(r_j)\right|
    \right)$$

    with the gain $g = 2^y - 1$, the discount $d(r) = 1 / \log_2(1 + r)$, the exact ranks $r$ and
    the n items of the list. Pairs with no item among the first k weigh 0, and in the second term d
    is 0 beyond rank k. Weights have no gradient. Ties count against the model: the more relevant
    item of a pair ranks last among its ties, the less relevant one first.

    Source: Wang et al. 2018, "The LambdaLoss framework"; Burges 2010 (LambdaMART) for f = 1.

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

    def __call__(self, lists: Lists) -> tuple[list[Tensor], list[Tensor], Callable]:
        """Gains and ranks of items, those of positives, and the function of a pair's weight."""
        top_k, smooth, discount = self.top_k, self.smooth_fraction, logarithmic_discount
        lists = lists.dense()
        first, last = first_and_last_ranks(-lists.filled)
        # Gains and ideal DCG have a common factor, which cancels.
        positive_gains = relative_gain(lists.relevance)
        ideal = ideal_dcg(positive_gains, top_k)[:, tf.newaxis]
        positive_gains *= tf.math.divide_no_nan(lists.num_items[:, tf.newaxis], ideal)

        def discount_up_to_k(rank: Tensor) -> Tensor:
            return discount(rank) if top_k is None else tf.where(rank <= top_k, discount(rank), 0)

        def pair_weight(gain_j: Tensor, rank_j: Tensor, gain_i: Tensor, rank_i: Tensor) -> Tensor:
            distance = tf.abs(rank_i - rank_j)
            # d(r) - d(r + 1), without subtracting nearly equal numbers.
            r = tf.maximum(distance, 1)
            logs = tf.math.log1p(r) * tf.math.log1p(r + 1)
            relative = np.log(2.0) * tf.math.log1p(1 / (1 + r)) / logs
            relative = tf.where(distance > 0, relative, 0)
            absolute = tf.abs(discount_up_to_k(rank_i) - discount_up_to_k(rank_j))
            weight = (gain_i - gain_j) * ((1 - smooth) * relative + smooth * absolute)
            if top_k is not None:
                weight = tf.where(tf.minimum(rank_i, rank_j) <= top_k, weight, 0)
            return tf.stop_gradient(weight)

        first = tf.cast(first, lists.dtype)
        last = tf.cast(lists.at_positives(last), lists.dtype)
        return [lists.by_item(positive_gains), first], [positive_gains, last], pair_weight
