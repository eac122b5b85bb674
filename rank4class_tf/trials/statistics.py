"""Values and gains of the candidates of `try_out`, with intervals for test lists and seeds."""

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from rank4class_tf._intervals import Comparison, Estimate, mean_difference

# Of a candidate and seed: metric -> values of the lists, their weights, and the bounds of a value.
Test: TypeAlias = dict[str, Sequence]


def estimate(tests: list[Test], metric: str) -> Estimate:
    """The mean of a metric with its interval, from the tests of one candidate."""
    values, weights, (low, high) = _values_of_lists(tests, metric)
    mean = float((values @ weights).mean() / max(weights.sum(), 1e-300))
    spread = mean_difference(values - mean, weights, 0.95, high - low)
    return Estimate(mean, max(low, mean + spread.low), min(high, mean + spread.high))


def gains(tests: dict[str, list[Test]]) -> dict[str, dict[str, Comparison]]:
    """Comparisons of each candidate with the first, by metric."""
    first, *others = tests
    compared: dict[str, dict[str, Comparison]] = {name: {} for name in tests}
    for metric in tests[first][0]:
        # Candidates share the lists and, in pairs, the seeds: their difference is the sample.
        base, weights, (low, high) = _values_of_lists(tests[first], metric)
        comparisons = []
        for name in others:
            differences = _values_of_lists(tests[name], metric)[0] - base
            comparison = mean_difference(differences, weights, 0.95, high - low)
            comparisons.append((name, comparison))
        # Holm's correction: the smallest p-value counts for all tests, the next for one fewer.
        comparisons.sort(key=lambda pair: pair[1].p_value)
        highest = 0.0
        for rank, (name, comparison) in enumerate(comparisons):
            highest = max(highest, min(1.0, comparison.p_value * (len(others) - rank)))
            compared[name][metric] = dataclasses.replace(comparison, p_value=highest)
    return compared


def _values_of_lists(
    tests: list[Test], metric: str
) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """The values `[seeds, lists]` of a metric, the weights of the lists, and the bounds."""
    _, weights, (low, high) = tests[0][metric]
    values = np.array([test[metric][0] for test in tests])
    return values, np.array(weights), (float(low), float(high))
