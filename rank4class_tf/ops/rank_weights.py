r"""Weights $\theta$ of the ordered negatives; the first weight is that of the highest score."""

import dataclasses
import numbers
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _config
from rank4class_tf._tf.binomial import log_binomial
from rank4class_tf._types import TensorLike


class RankWeights(_config.Configured):
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
