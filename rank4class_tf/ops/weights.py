"""Gains, discounts, weights by rank, and functions of violations."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._lists.lists import Lists
from rank4class_tf._tf.exact import log_binomial, violation
from rank4class_tf._types import TensorLike


def exponential_gain(relevance: TensorLike) -> tf.Tensor:
    """Gain `2**y - 1` of a label y.

    Example:
        >>> exponential_gain([0.0, 1.0, 2.0]).numpy()
        array([0., 1., 3.], dtype=float32)
    """
    relevance = tf.convert_to_tensor(relevance)
    # We treat the whole part and the rest separately, so that whole labels have exact gains.
    limit = math.frexp(relevance.dtype.max)[1]
    whole = tf.where(relevance > 0, tf.floor(tf.minimum(relevance, limit)), 0)
    powers = tf.constant(np.append(2.0 ** np.arange(limit), np.inf), relevance.dtype)
    power = tf.gather(powers, tf.cast(whole, tf.int32))
    rest = tf.math.expm1((relevance - whole) * np.log(2.0))
    return tf.where(tf.math.is_inf(power), power, power * rest + (power - 1))


def logarithmic_discount(rank: TensorLike) -> tf.Tensor:
    """Discount `1 / log2(1 + r)` of a rank r.

    Example:
        >>> logarithmic_discount([1.0, 3.0]).numpy()
        array([1. , 0.5], dtype=float32)
    """
    return np.log(2.0) / tf.math.log1p(tf.convert_to_tensor(rank))


GAINS: dict[str, Callable] = {
    "exponential": exponential_gain,
    "linear": lambda relevance: relevance,
}
DISCOUNTS: dict[str, Callable] = {
    "logarithmic": logarithmic_discount,
    "reciprocal": lambda rank: 1 / rank,
}


def get_gain(gain: str | Callable) -> Callable:
    """Returns a gain by name, or a function as it is.

    Args:
        gain: `"exponential"`, `"linear"` or a function of labels.

    Raises:
        ValueError: if it is none of these.

    Example:
        >>> get_gain("linear")(2.0)
        2.0
    """
    return _get("gain", GAINS, gain)


def get_discount(discount: str | Callable) -> Callable:
    """Returns a discount by name, or a function as it is.

    Args:
        discount: `"logarithmic"`, `"reciprocal"` or a function of ranks.

    Raises:
        ValueError: if it is none of these.

    Example:
        >>> get_discount("reciprocal")(2.0)
        0.5
    """
    return _get("discount", DISCOUNTS, discount)


def _get(argument, known, value):
    if callable(value):
        return value
    if isinstance(value, str) and value in known:
        return known[value]
    raise ValueError(
        f"`{argument}` must be one of {sorted(known)} or callable. Received: {value!r}."
    )


def gain_cancels(gain: str | Callable, relevance: tf.Tensor) -> bool:
    """Whether the gain cancels in a ratio of sums: the only positive has a gain > 0."""
    return relevance.shape[1] == 1 and gain in [*GAINS]


def gains_up_to_a_factor(gain: str | Callable, relevance: tf.Tensor) -> tf.Tensor:
    """The gains of labels `[batch, P]`, those of each list up to a factor."""
    return relative_gain(relevance) if gain == "exponential" else get_gain(gain)(relevance)


def relative_gain(relevance: tf.Tensor) -> tf.Tensor:
    """`2**y - 1` of labels `[batch, P]`, up to a factor of each list that keeps it finite.

    Use it where the factor cancels. A list whose labels are at most 64 has the factor 1.
    """
    excess = tf.nn.relu(tf.reduce_max(relevance, axis=-1, keepdims=True) - 64)
    scaled = relevance - excess
    far = tf.exp(scaled * np.log(2.0)) - tf.exp(-excess * np.log(2.0))
    gains = tf.where(excess > 0, far, exponential_gain(scaled))
    return tf.where(relevance <= 0, tf.zeros_like(gains), gains)  # A NaN stays NaN.


def ideal_dcg(
    gains: tf.Tensor, top_k: int | None = None, discount: Callable = logarithmic_discount
) -> tf.Tensor:
    """Gains `[batch, P]` in their best order, discounted, over the first `top_k` ranks."""
    best = tf.sort(gains, axis=-1, direction="DESCENDING")[:, :top_k]
    return discounted_sum(best, discount(tf.range(1, tf.shape(best)[1] + 1, dtype=gains.dtype)))


def discounted_sum(best_gains: tf.Tensor, table: Any) -> tf.Tensor:
    """Sums gains `[batch, P]` in the order of their ranks, times the discounts of these ranks."""
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


def hinge(margins: tf.Tensor) -> tf.Tensor:
    r"""Hinge, $(1 - u)_+$.

    Example:
        >>> hinge(tf.constant([-1.0, 0.5, 2.0])).numpy()
        array([2. , 0.5, 0. ], dtype=float32)
    """
    return violation(-margins, 1.0)


def squared_hinge(margins: tf.Tensor) -> tf.Tensor:
    r"""Squared hinge, $(1 - u)_+^2$.

    Example:
        >>> squared_hinge(tf.constant([-1.0, 0.5, 2.0])).numpy()
        array([4.  , 0.25, 0.  ], dtype=float32)
    """
    return tf.square(violation(-margins, 1.0))


def logistic(margins: tf.Tensor) -> tf.Tensor:
    r"""Logistic, $\log_2(1 + e^{-u})$.

    Example:
        >>> logistic(tf.constant([0.0])).numpy()
        array([1.], dtype=float32)
    """
    return tf.math.softplus(-margins) / np.log(2.0)


def exponential(margins: tf.Tensor) -> tf.Tensor:
    r"""Exponential, $e^{-u}$; below u = -80 its tangent continues it.

    Example:
        >>> exponential(tf.constant([0.0, 1.0])).numpy()
        array([1.        , 0.36787945], dtype=float32)
    """
    excess = tf.nn.relu(-margins - _EXPONENTIAL_LIMIT)
    return tf.exp(-tf.maximum(margins, -_EXPONENTIAL_LIMIT)) * (1 + excess)


@dataclasses.dataclass(frozen=True)
class Ramp(_registry.Configured):
    r"""Ramp, $1(u \le 0) + (1 - u / \rho) 1(0 < u \le \rho)$; bounded, hence not convex.

    Args:
        width: $\rho$ > 0.

    Raises:
        ValueError: if `width` is not a finite number > 0.

    Example:
        >>> Ramp(width=2.0)(tf.constant([-5.0, 1.0, 3.0])).numpy()
        array([1. , 0.5, 0. ], dtype=float32)
    """

    width: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "width", _checks.positive_float("width", self.width))

    def __call__(self, margins: tf.Tensor) -> tf.Tensor:
        """Applies the function to margins of any shape."""
        return 1 - tf.clip_by_value(margins / self.width, 0, 1)


@dataclasses.dataclass(frozen=True)
class Scaled(_registry.Configured):
    r"""A margin function of scaled margins, $\varphi(s u)$.

    Scores of unit vectors lie in [-1, 1], where a binary hinge never acts, and a pairwise one only
    beyond a difference of 1; at the scale s they act at 1 / s.

    Args:
        phi: the name of $\varphi$; see `get_phi`.
        scale: s > 0.

    Raises:
        ValueError: if `phi` is not a name of a function or `scale` not a finite number > 0.

    Example:
        >>> Scaled("hinge", 4.0)(tf.constant([-0.5, 0.125, 0.25])).numpy()
        array([3. , 0.5, 0. ], dtype=float32)
    """

    phi: str
    scale: float

    def __post_init__(self):
        _checks.one_of("phi", self.phi, tuple(_BY_NAME))
        object.__setattr__(self, "scale", _checks.positive_float("scale", self.scale))

    def __call__(self, margins: tf.Tensor) -> tf.Tensor:
        """Applies the function to margins of any shape."""
        return _BY_NAME[self.phi](self.scale * margins)


_BY_NAME: dict[str, Callable] = {
    "hinge": hinge,
    "squared_hinge": squared_hinge,
    "logistic": logistic,
    "exponential": exponential,
    "ramp": Ramp(),
}


def get_phi(phi: str | Callable) -> Callable:
    r"""Returns a margin function by name.

    Args:
        phi: `"hinge"`, `"squared_hinge"`, `"logistic"`, `"exponential"`, `"ramp"` (of width 1), a
            `Ramp`, a `Scaled`, or any elementwise function of a tensor of margins. The bounds of
            the paper hold for a function that is non-increasing and at least 1 where the margin is
            <= 0.

    Returns:
        A function of a tensor of margins that is 0 at the margin of a masked item.

    Raises:
        ValueError: if `phi` is neither a known name nor callable.

    Example:
        >>> get_phi("hinge")(tf.constant([0.25])).numpy()
        array([0.75], dtype=float32)
    """
    if isinstance(phi, str) and phi in _BY_NAME:
        return _BY_NAME[phi]
    if isinstance(phi, Ramp | Scaled):
        return phi
    if callable(phi):
        return _without_masked(phi)
    raise ValueError(f"`phi` must be one of {sorted(_BY_NAME)} or callable. Received: {phi!r}.")


def _without_masked(phi):
    """The function, set to 0 at the huge margins of masked items."""

    def masked_phi(margins):
        near = margins < margins.dtype.max / 32
        values = phi(tf.where(near, margins, tf.zeros_like(margins)))
        return tf.where(near, values, tf.zeros_like(values))

    return masked_phi


class RankWeights(_registry.Configured):
    """Base: leading weights, then one constant weight for all the others.

    Leading weights cost a search for the highest scores, the constant one costs only a sum.

    Attributes:
        tail: the weight of all the others, >= 0.
    """

    tail: float = 0.0

    @property
    def num_leading(self) -> int | None:
        """The number of leading weights; None means all."""
        raise NotImplementedError

    def leading(self, n: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The first `n` weights, `[n]`, where n <= `num_leading`."""
        raise NotImplementedError

    def first(self, n: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The first `n` weights, `[n]`, leading and constant ones."""
        if self.num_leading is None:
            return self.leading(n, dtype)
        count = tf.minimum(n, self.num_leading)
        rest = tf.fill([n - count], tf.constant(self.tail, dtype))
        return tf.concat([self.leading(count, dtype), rest], axis=0)


@dataclasses.dataclass(frozen=True)
class TopKWeights(RankWeights):
    r"""Equal weights of the k highest, $\theta_j = 1/k$ for $j \le k$.

    The ordered weighted loss bounds the 0/1 loss of the k best. With a small `tail` it is
    calibrated as well, under the conditions of theorem 4.

    Source: Stochastic Negative Mining, theorem 3 and, for `tail`, theorem 4 and footnote 2.

    Args:
        k: positive integer.
        tail: weight >= 0 of all the others.

    Raises:
        ValueError: if `k` is not a positive integer or `tail` not a finite number >= 0.

    Example:
        >>> TopKWeights(2, tail=0.1).first(3, tf.float32).numpy()
        array([0.5, 0.5, 0.1], dtype=float32)
    """

    k: int
    tail: float = 0.0

    def __post_init__(self):
        _set(self, k=_checks.positive_int("k", self.k), tail=_weight("tail", self.tail))

    @property
    def num_leading(self) -> int:
        """The `k` highest."""
        return self.k

    def leading(self, n: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The first `n` weights, `[n]`."""
        return tf.fill([n], tf.constant(1 / self.k, dtype))


@dataclasses.dataclass(frozen=True)
class UniformWeights(RankWeights):
    r"""All weights 1, $\theta_j = 1$.

    Example:
        >>> UniformWeights().first(3, tf.float32).numpy()
        array([1., 1., 1.], dtype=float32)
    """

    num_leading = 0
    tail = 1.0

    def leading(self, n: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The first `n` weights, `[n]`."""
        return tf.fill([n], tf.constant(1.0, dtype))


@dataclasses.dataclass(frozen=True)
class PowerLawWeights(RankWeights):
    r"""Weights that fall as a power, $\theta_j = j^{-a}$. They need all scores sorted.

    Source: Stochastic Negative Mining, section 3.1.

    Args:
        exponent: a > 0.

    Raises:
        ValueError: if `exponent` is not a finite number > 0.

    Example:
        >>> PowerLawWeights(2.0).first(2, tf.float32).numpy()
        array([1.  , 0.25], dtype=float32)
    """

    exponent: float = 1.0
    num_leading = None

    def __post_init__(self):
        _set(self, exponent=_checks.positive_float("exponent", self.exponent))

    def leading(self, n: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The first `n` weights, `[n]`."""
        return tf.cast(tf.range(1, n + 1), dtype) ** -self.exponent


@dataclasses.dataclass(frozen=True)
class StaircaseWeights(RankWeights):
    r"""Weights that are constant over ranges of ranks.

    $\theta_j = w_i$ for $e_{i-1} < j \le e_i$, and $\theta_j$ = `tail` after the last.

    Args:
        steps: pairs $(e_i, w_i)$ with rising $e_i$.
        tail: weight >= 0 of all after the last step.

    Raises:
        ValueError: if the ends are not rising positive integers or a weight is not >= 0.

    Example:
        >>> StaircaseWeights([(1, 1.0), (3, 0.5)]).first(5, tf.float32).numpy()
        array([1. , 0.5, 0.5, 0. , 0. ], dtype=float32)
    """

    steps: Sequence
    tail: float = 0.0

    def __post_init__(self):
        rule = "`steps` must hold (end, weight) pairs with rising ends."
        try:
            pairs = [(end, weight) for end, weight in self.steps]
        except (TypeError, ValueError) as error:
            raise ValueError(f"{rule} Received: {self.steps!r}.") from error
        steps = tuple(
            (_checks.positive_int("steps", end), _weight("steps", weight)) for end, weight in pairs
        )
        ends = [end for end, _ in steps]
        if not ends or ends != sorted(set(ends)):
            raise ValueError(f"{rule} Received: {self.steps!r}.")
        _set(self, steps=steps, tail=_weight("tail", self.tail))

    @property
    def num_leading(self) -> int:
        """The end of the last step."""
        return self.steps[-1][0]

    def leading(self, n: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The first `n` weights, `[n]`."""
        ends, weights = zip(*self.steps, strict=True)
        return tf.constant(np.repeat(weights, np.diff(ends, prepend=0)), dtype)[:n]


@dataclasses.dataclass(frozen=True)
class ListedWeights(RankWeights):
    r"""Weights from a list, 0 after the last.

    Args:
        values: finite numbers >= 0, at least one.

    Raises:
        ValueError: if `values` is not of that form.

    Example:
        >>> ListedWeights([3.0, 1.0]).first(3, tf.float32).numpy()
        array([3., 1., 0.], dtype=float32)
    """

    values: Sequence

    def __post_init__(self):
        values = np.asarray(self.values)
        if values.ndim != 1 or not values.size:
            raise ValueError(
                "`rank_weights` must be a list of at least one number, or an object such as "
                f"TopKWeights(k=5). Received: {self.values!r}."
            )
        _set(self, values=tuple(_weight("rank_weights", value) for value in values.tolist()))

    @property
    def num_leading(self) -> int:
        """The number of weights."""
        return len(self.values)

    def leading(self, n: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The first `n` weights, `[n]`."""
        return tf.constant(self.values, dtype)[:n]


def get_rank_weights(weights: RankWeights | TensorLike) -> RankWeights:
    """Returns `weights` as a `RankWeights`; a list or an array becomes `ListedWeights`.

    Example:
        >>> get_rank_weights([1, 0.5])
        ListedWeights(values=(1.0, 0.5))
    """
    return weights if isinstance(weights, RankWeights) else ListedWeights(weights)


def snm_expected_weights(
    rank_weights: RankWeights | TensorLike, num_sampled: int, num_negatives: int
) -> tf.Tensor:
    r"""Weights of the loss that stochastic negative mining estimates without bias.

    $$\theta_j = \sum_{i=1}^B \vartheta_i \binom{j-1}{i-1} \binom{N-j}{B-i} \Big/ \binom{N}{B}$$

    Source: Stochastic Negative Mining, lemma 2 and its proof.

    Args:
        rank_weights: $\vartheta$ of the ordered sample, a `RankWeights` or a list.
        num_sampled: B, positive integer.
        num_negatives: N >= B, how many negatives there are; K - 1 for K classes.

    Returns:
        `[N]` float64.

    Raises:
        ValueError: unless 1 <= `num_sampled` <= `num_negatives`.

    Example:
        >>> snm_expected_weights([1.0], num_sampled=2, num_negatives=3).numpy()  # 2/3, 1/3, 0
        array([0.66666667, 0.33333333, 0.        ])
    """
    num_sampled = _checks.positive_int("num_sampled", num_sampled)
    if num_sampled > _checks.positive_int("num_negatives", num_negatives):
        raise ValueError(
            "`num_sampled` must be in [1, num_negatives]. "
            f"Received: num_sampled={num_sampled}, num_negatives={num_negatives}."
        )
    rank_weights = get_rank_weights(rank_weights)
    sampled = tf.constant(num_sampled, tf.float64)
    total = tf.constant(num_negatives, tf.float64)
    leading = rank_weights.leading(at_most(num_sampled, rank_weights.num_leading), tf.float64)
    i = tf.range(1, len(leading) + 1, dtype=tf.float64)
    j = tf.range(1, total + 1)[:, tf.newaxis]
    log_probability = (
        log_binomial(j - 1, i - 1) + log_binomial(total - j, sampled - i)
    ) - log_binomial(total, sampled)
    # A negative of any rank is in the sample with probability B / N.
    constant = rank_weights.tail * sampled / total
    return tf.linalg.matvec(tf.exp(log_probability), leading - rank_weights.tail) + constant


def at_most(n: int | tf.Tensor, limit: int | None) -> int | tf.Tensor:
    """The smaller of two counts, an int where both are; the limit may be None."""
    if limit is None:
        return n
    return min(n, limit) if isinstance(n, int) else tf.minimum(n, limit)


def _weight(name, value):
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or value < 0:
        raise ValueError(f"`{name}` must hold finite numbers >= 0. Received: {value!r}.")
    return float(value)


def _set(instance, **values):
    """Sets fields of a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


class PairWeights(NamedTuple):
    """What the weight of a pair of items depends on.

    Attributes:
        item_gains: `[batch, n]`.
        item_ranks: `[batch, n]`.
        positive_gains: `[batch, P]`.
        positive_ranks: `[batch, P]`.
        of_pair: maps an item's gain and rank and a positive's gain and rank to the pair's weight.
    """

    item_gains: tf.Tensor
    item_ranks: tf.Tensor
    positive_gains: tf.Tensor
    positive_ranks: tf.Tensor
    of_pair: Callable


@dataclasses.dataclass(frozen=True)
class NDCGLambdaWeights(_registry.Configured):
    r"""Weights of LambdaLoss and LambdaMART, for the pairwise losses.

    $$w_{ij} = n \, \frac{|g_i - g_j|}{\mathrm{idealDCG@}k} \left(
    (1 - f) \left|d(|r_i - r_j|) - d(|r_i - r_j| + 1)\right| + f \left|d(r_i) - d(r_j)\right|
    \right)$$

    with the gain $g = 2^y - 1$, the discount $d(r) = 1 / \log_2(1 + r)$, the exact ranks $r$ and
    the n items of the list. Pairs with no item among the first k weigh 0, and in the second term d
    is 0 beyond rank k. No gradient flows through the weights. Ties count against the model: the
    more relevant item of a pair ranks last among its ties, the less relevant one first.

    Source: Wang et al. 2018, "The LambdaLoss framework"; Burges 2010 (LambdaMART) for f = 1.

    Args:
        top_k: k, or None for no cutoff.
        smooth_fraction: f, in [0, 1].

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> weights = NDCGLambdaWeights(smooth_fraction=1.0)
        >>> from rank4class_tf.losses import PairwiseLogisticLoss
        >>> float(PairwiseLogisticLoss(lambda_weights=weights)([1], [[0.0, 0.0]]))
        0.5116...
    """

    top_k: int | None = None
    smooth_fraction: float = 0.0

    def __post_init__(self):
        if self.top_k is not None:
            _checks.positive_int("top_k", self.top_k)
        _checks.fraction("smooth_fraction", self.smooth_fraction)

    def __call__(self, lists: Lists) -> PairWeights:
        """Returns the `PairWeights` of `Lists`."""
        return _ndcg_pair_weights(lists, self.top_k, self.smooth_fraction)


def _ndcg_pair_weights(lists, top_k, smooth_fraction):
    discount = logarithmic_discount
    first, last = lists.tied_ranks()
    # Gains and ideal DCG have a common factor, which cancels.
    positive_gains = relative_gain(lists.relevance)
    ideal = ideal_dcg(positive_gains, top_k)[:, tf.newaxis]
    scale = tf.math.divide_no_nan(lists.num_items[:, tf.newaxis], ideal)
    positive_gains *= scale

    def discount_up_to_k(rank):
        return discount(rank) if top_k is None else tf.where(rank <= top_k, discount(rank), 0)

    def of_pair(gain_j, rank_j, gain_i, rank_i):
        distance = tf.abs(rank_i - rank_j)
        relative = tf.where(distance > 0, _discount_difference(tf.maximum(distance, 1)), 0)
        absolute = tf.abs(discount_up_to_k(rank_i) - discount_up_to_k(rank_j))
        weight = (gain_i - gain_j) * ((1 - smooth_fraction) * relative + smooth_fraction * absolute)
        if top_k is not None:
            weight = tf.where(tf.minimum(rank_i, rank_j) <= top_k, weight, 0)
        return tf.stop_gradient(weight)

    return PairWeights(
        lists.by_item(positive_gains),
        tf.cast(first, lists.dtype),
        positive_gains,
        tf.cast(lists.at_positives(last), lists.dtype),
        of_pair,
    )


def _discount_difference(rank):
    """`d(r) - d(r + 1)`, without subtracting nearly equal numbers."""
    logs = tf.math.log1p(rank) * tf.math.log1p(rank + 1)
    return np.log(2.0) * tf.math.log1p(1 / (1 + rank)) / logs
