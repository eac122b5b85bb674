"""Means over lists and their intervals; `evaluate` and `compare` tell formulas and sources."""

import dataclasses
import math
from typing import TypeAlias

import numpy as np
import tensorflow as tf

Values: TypeAlias = np.ndarray  # `[lists]` or `[seeds, lists]`.
UNBOUNDED = (-math.inf, math.inf)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over lists with its confidence interval.

    Attributes:
        value: the weighted mean.
        low, high: the ends of the interval.
    """

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The difference of two models on the same lists.

    Attributes:
        difference: mean of the first minus mean of the second.
        low, high: the ends of its confidence interval.
        p_value: the probability of a difference at least as large if the models do not differ.
    """

    difference: float
    low: float
    high: float
    p_value: float


def interval(
    values: Values, weights: Values, confidence: float, bounds: tuple[float, float] | None = None
) -> Estimate:
    """The interval of the method "normal"; see `evaluate`."""
    from statistics import NormalDist  # Importing it takes a tenth of our import time.

    total = float(weights.sum())
    if not total:
        return Estimate(0.0, 0.0, 0.0)
    mean = weighted_mean(values, weights)
    size = total**2 / float(weights @ weights)
    variance = float((weights**2) @ (values - mean) ** 2) / total**2
    # Student's distribution allows for a variance that is estimated; a proportion has none.
    q = NormalDist().inv_cdf((1 + confidence) / 2)
    is_proportion = bounds == (0, 1) and np.isin(values[weights != 0], [0, 1]).all()
    if size > 1 and not is_proportion:
        variance *= size / (size - 1)
        q = student(confidence, size - 1)
    center, half = mean, q * math.sqrt(variance)
    if bounds == (0, 1):  # Wilson's interval.
        spread = mean * (1 - mean)
        # Where all values are the same, the number of lists is what we know.
        n = spread / variance if variance > 0 and not is_proportion else size
        center = (mean + q**2 / (2 * n)) / (1 + q**2 / n)
        half = q * math.sqrt(spread / n + q**2 / (4 * n**2)) / (1 + q**2 / n)
    low, high = np.clip([center - half, center + half], *(bounds or UNBOUNDED))
    return Estimate(mean, float(low), float(high))


def bootstrap(
    values: Values, weights: Values, confidence: float, samples: int, rng: np.random.Generator
) -> Estimate:
    """The interval of the method "bootstrap"; see `evaluate`."""
    counted = weights != 0  # A draw of only weights 0 would have no mean.
    values, weights = values[counted], weights[counted]
    if not len(values):
        return Estimate(0.0, 0.0, 0.0)
    means = []
    for _ in range(samples):
        drawn = rng.integers(0, len(values), len(values))
        means.append(weighted_mean(values[drawn], weights[drawn]))
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(weighted_mean(values, weights), float(low), float(high))


def mean_difference(
    differences: Values, weights: Values, confidence: float, most: float = math.inf
) -> Comparison:
    """The mean of differences `[seeds, lists]`, both samples, with the p-value of Student's T."""
    # `most` is the largest difference that a list can have; infinity stands for the largest here.
    if not weights.any():
        return Comparison(0.0, 0.0, 0.0, 1.0)
    shares = weights / weights.sum()
    seed_means, list_means = differences @ shares, differences.mean(axis=0)
    size, mean = 1 / float(shares @ shares), float(shares @ list_means)
    most = most if math.isfinite(most) else float(np.abs(list_means).max())

    # The variance of the lists and of the two more lists that `compare` explains.
    center = mean * size / (size + 2)
    second_moment = (float(shares @ list_means**2) * size + most**2) / (size + 2)
    parts = [((second_moment - center**2) / (size + 2), size + 1)]
    # Several seeds have a variance of their own.
    if len(seed_means) > 1:
        parts.append((float(seed_means.var(ddof=1)) / len(seed_means), len(seed_means) - 1))
    variance = sum(part for part, _ in parts)
    if not variance > 0:
        return Comparison(mean, mean, mean, 1.0 if variance == 0 else math.nan)
    # The degrees of freedom of a sum of variances, by Satterthwaite.
    freedom = variance**2 / sum(part**2 / part_freedom for part, part_freedom in parts)
    half = student(confidence, freedom) * math.sqrt(variance)
    p_value = two_sided(center / math.sqrt(variance), freedom)
    return Comparison(mean, max(center - half, -most), min(center + half, most), p_value)


def weighted_mean(values: Values, weights: Values) -> float:
    """The mean of the values of lists; 0 if all weights are 0."""
    total = weights.sum()
    return float(weights @ values / total) if total else 0.0


def two_sided(t: float, freedom: float) -> float:
    """The probability that Student's T is farther from 0 than t."""
    x = freedom / (freedom + t * t)
    return float(tf.math.betainc(np.float64(freedom / 2), np.float64(0.5), np.float64(x)))


def student(confidence: float, freedom: float) -> float:
    """The distance from 0 that Student's T exceeds with the probability `1 - confidence`."""
    # Double the upper end until it is beyond the quantile, then halve the interval.
    low, high = 0.0, 2.0
    while two_sided(high, freedom) > 1 - confidence:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        outside = two_sided(middle, freedom) > 1 - confidence
        low, high = (middle, high) if outside else (low, middle)
    return high
