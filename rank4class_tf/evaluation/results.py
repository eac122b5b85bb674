"""What an evaluation found, averages over models, and the comparison of two."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rank4class_tf import _checks, _files, _intervals
from rank4class_tf import metrics as _metrics
from rank4class_tf._intervals import UNBOUNDED, Comparison, Estimate
from rank4class_tf._types import PathLike


class _ByMetric(dict[str, Any]):
    """Values by the name of a metric, its `name` or another one for `metrics.get`."""

    def __missing__(self, name: str) -> Any:
        with contextlib.suppress(TypeError, ValueError):
            metric_name = _metrics.get(name).name
            if metric_name in self:
                return self[metric_name]
        raise KeyError(
            f"The metric must be one of: {', '.join(self)}. Received: {name!r}."
        )


class _Comparisons(_ByMetric):
    """What `compare` returns."""

    def __repr__(self) -> str:
        rows = {
            name: f"{x.difference:14.4f} {x.low:8.4f} {x.high:8.4f} {x.p_value:8.4f}"
            for name, x in self.items()
        }
        return _table(rows, "first - second      low     high  p-value")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`: metrics with intervals, and the values of every list.

    Attributes:
        estimates: name of a metric -> `Estimate`.
        values: name of a metric -> `[lists]` float64, its value for each list.
        weights: name of a metric -> `[lists]` float64; 0 for a list without positives,
            unless the metric has `count_empty`.
        ranks: `[lists]` float64, the expected rank of each list's best positive, NaN
            without one; infinite if it is not among `metrics.RankedIds`.
        class_ids: `[lists]` int64, the most relevant item of each list, the highest id
            of several, -1 without a positive; None if not kept. Ids that are strings
            are hashes here.
        top_classes: `[lists, m]` int64, the m <= 10 highest items of each list, best
            first, padded with -1; None if not kept, as by `average` and models that
            rank in blocks.
        bounds: name of a metric -> the lowest and highest value that a list can have.
    """

    estimates: dict[str, Estimate]
    values: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    ranks: np.ndarray
    class_ids: np.ndarray | None = None
    top_classes: np.ndarray | None = None
    bounds: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def __getitem__(self, name: str) -> Estimate:
        """The `Estimate` of a metric, by its name or another one for `metrics.get`."""
        return _ByMetric(self.estimates)[name]

    def __repr__(self) -> str:
        rows = {
            name: f"{x.value:8.4f} {x.low:8.4f} {x.high:8.4f}"
            for name, x in self.estimates.items()
        }
        lines = [_table(rows, "   value      low     high"), f"{len(self.ranks)} lists"]
        for name, values in self.values.items():
            bounds = self.bounds.get(name)
            if _intervals.are_skewed(values, self.weights[name], bounds):
                lines.append(
                    f"{name}: too few lists for values so skewed; its interval is too "
                    "short"
                )
        return "\n".join(lines)

    def save(self, path: PathLike) -> None:
        """Writes a row for each list: its rank, and value and weight of each metric.

        Args:
            path: a `.csv` file, which appears only once it is complete.
        """
        columns = {"rank": self.ranks}
        for name in self.values:
            columns[name] = self.values[name]
            columns[f"{name}_weight"] = self.weights[name]
        is_csv = os.path.splitext(path)[1] == ".csv"
        _checks.require(is_csv, "`path` must end in .csv.", repr(path))
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        with (
            _files.replacing(path) as temporary,
            open(temporary, "w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)


def average(evaluations: Sequence[Evaluation], confidence: float = 0.95) -> Evaluation:
    """Averages evaluations of several models on the same lists, such as several seeds.

    The value of each list is the mean over the models. The intervals are computed as by
    `evaluate(method="normal")`. They show how much the choice of lists matters, not the
    choice of models.

    Args:
        evaluations: one or more, of the same metrics and lists in the same order.
        confidence: the probability that an interval covers the mean, in (0, 1).

    Example:
        >>> from rank4class_tf import evaluate
        >>> ids, lists = [0, 0, 0, 1], ([[3.0, 1.0, 2.0]] * 4, [[1.0, 3.0, 2.0]] * 4)
        >>> both = [evaluate(lambda x: x, (scores, ids), ["mrr"]) for scores in lists]
        >>> round(average(both)["mrr"].value, 4)  # of 5/6 and 1/2
        0.6667
    """
    confidence = _checks.inner_fraction("confidence", confidence)
    _checks.require(evaluations, "`evaluations` must have at least one.", "none")
    first = evaluations[0]
    for evaluation in evaluations[1:]:
        _check_same_lists(first, evaluation)

    values = {}
    estimates = {}
    for name, weights in first.weights.items():
        mean = np.mean([e.values[name] for e in evaluations], axis=0)
        values[name] = mean
        bounds = first.bounds.get(name)
        estimates[name] = _intervals.interval(mean, weights, confidence, bounds)
    ranks = np.mean([e.ranks for e in evaluations], axis=0)
    return Evaluation(
        estimates, values, first.weights, ranks, first.class_ids, bounds=first.bounds
    )


def compare(
    first: Evaluation,
    second: Evaluation,
    samples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> dict[str, Comparison]:
    r"""Compares two models on the same lists by the paired randomisation test.

    Differences are the first model's value minus the second's.

    If the models do not differ, swapping the two values of a list makes no difference
    on average. So the test swaps them at random: the p-value is the share of draws with
    a difference at least as large. The interval is $\bar d \pm q s$ of the differences
    $d$ of the lists and of two more, because lists without a difference say little
    about rare differences: half a list at each end of the range of a difference, and
    one list without a difference. The result maps the name of a metric, its `name` or
    one for `metrics.get`, and prints as a table.

    Source: Smucker, Allan & Carterette 2007, for the test; Agresti & Min 2005, "Simple
    Improved Confidence Intervals for Comparing Matched Proportions", for the two lists.

    Args:
        first: an `Evaluation`.
        second: another one, of the same metrics and lists in the same order.
        samples: how many times swaps are drawn.
        seed: of the draws, in [0, 2**32).
        confidence: the probability that an interval covers the difference, in (0, 1).

    Example:
        >>> from rank4class_tf import evaluate
        >>> data = [[3.0, 1.0, 2.0]] * 4, [0, 0, 0, 1]
        >>> first = evaluate(lambda x: x, data, ["mrr"])
        >>> print(compare(first, evaluate(lambda x: -x, data, ["mrr"])))
        metric first - second      low     high  p-value
        mrr            0.3333  -0.4527   0.8971   0.6316
    """
    _checks.positive_int("samples", samples)
    seed = _checks.seed(seed)
    confidence = _checks.inner_fraction("confidence", confidence)
    _check_same_lists(first, second)
    rng = np.random.default_rng(seed)
    result = _Comparisons()
    for name, values in first.values.items():
        weights = first.weights[name]
        low, high = first.bounds.get(name) or UNBOUNDED
        differences = values - second.values[name]
        sample = differences[np.newaxis]
        interval = _intervals.mean_difference(sample, weights, confidence, high - low)

        # The test: one sign for each list and draw. A swap changes nothing where the
        # models agree.
        differences = weights * differences
        total = differences.sum()
        differences = differences[differences != 0]
        signs = (rng.integers(0, 2, len(differences)) * 2 - 1 for _ in range(samples))
        swapped = np.array([s @ differences for s in signs])
        # Sums of the same terms in another order may differ by rounding.
        slack = 1e-12 * np.abs(differences).sum()
        extreme = np.count_nonzero(np.abs(swapped) >= abs(total) - slack)
        p_value = math.nan
        if not math.isnan(total):
            p_value = float((extreme + 1) / (samples + 1))
        result[name] = dataclasses.replace(interval, p_value=p_value)
    return result


def _check_same_lists(first: Evaluation, second: Evaluation) -> None:
    names = sorted(first.values)
    other_names = sorted(second.values)
    rule = "The evaluations must have the same metrics."
    _checks.require(names == other_names, rule, f"{names} and {other_names}")
    for name, weights in first.weights.items():
        if not np.array_equal(weights, second.weights[name]):
            raise ValueError(
                f"The evaluations must have the same lists. {name!r} differs."
            )
    ids = first.class_ids
    other_ids = second.class_ids
    if ids is not None and other_ids is not None and not np.array_equal(ids, other_ids):
        rule = "The evaluations must have the same lists in the same order."
        raise ValueError(f"{rule} Their labels differ.")


def _table(rows: Mapping[str, str], head: str) -> str:
    """A line for each metric, below a head."""
    width = max([6, *map(len, rows)])
    lines = [f"{name:{width}} {row}" for name, row in rows.items()]
    return "\n".join([f"{'metric':{width}} {head}", *lines])
