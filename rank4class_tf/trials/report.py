"""What `try_out` returns: estimates, gains, a verdict, and how far to trust them."""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from tensorflow import keras

from rank4class_tf import _files
from rank4class_tf._intervals import Comparison, Estimate, mean_difference
from rank4class_tf._types import PathLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Learning rate, weight decay and a candidate's own parameter, by name.
Setting: TypeAlias = dict[str, Any]

# Fewer settings tune too little, fewer seeds or test lists show no gain.
FEW_SETTINGS, FEW_SEEDS, FEW_LISTS = 4, 3, 30
# A test that shows only gains above this one has not shown that nothing is gained.
SMALL_GAIN = 0.03
_WIDTH = 100  # Columns of the table.


class ListValues(NamedTuple):
    """A metric's values of the test lists, for one seed or stacked for several."""

    values: np.ndarray  # `[lists]` or `[seeds, lists]`.
    weights: np.ndarray  # `[lists]`, 0 for a list that does not count.
    bounds: Sequence[float]  # The lowest and the highest value that a list can have.


# What the test data say of a candidate after one seed, by the names of metrics.
TestResult: TypeAlias = dict[str, ListValues]


@dataclasses.dataclass(frozen=True)
class Gain(Comparison):
    """The difference of a candidate and the first one on the same test lists and seeds.

    Attributes:
        detectable: the smallest true gain that would have shown with a probability of
            0.8; infinite if the metric cannot rise so far above the first candidate's
            value.
        seeds_ahead: the number of seeds in which the candidate was ahead.
    """

    detectable: float
    seeds_ahead: int


@dataclasses.dataclass(frozen=True)
class Trial:
    """What `try_out` found out about a candidate.

    Attributes:
        validation: `monitor` on the validation data with the best setting, the mean
            over seeds.
        setting: the best learning rate, weight decay and own parameter.
        seconds: per epoch, the median.
        values: name of a metric -> its `Estimate` on the test data; empty if not
            tested.
        gains: name of a metric -> its `Gain` over the first candidate, which has none.
        build: returns a new model, compiled with the setting; for a candidate after
            training, the model to train first.
    """

    name: str
    validation: float
    setting: Setting
    seconds: float
    values: dict[str, Estimate]
    gains: dict[str, Gain]
    build: Callable[[], keras.Model] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, repr=False)
class TryOut:
    """The result of `try_out`; it prints as a table with a verdict.

    Attributes:
        trials: a `Trial` for each candidate, in the order given.
        monitor: the metric by which settings, epochs and finalists were chosen.
        num_settings: how many settings each candidate tried.
        num_seeds: how many fresh seeds the tested candidates were trained with.
        notes: what to know before you trust the table.
        noise: the estimate of wrong labels, or None: their `"share"`;
            `"concentration"`, the share of them that are the most frequent confusion of
            their class, 1 / (number of classes - 1) if spread evenly; and the first
            `"confusions"`: true class, label, number of examples.
        unfair: why there is no verdict, or None.
    """

    trials: list[Trial]
    monitor: str
    num_settings: int
    num_seeds: int
    notes: list[str]
    noise: dict[str, Any] | None
    unfair: str | None

    @property
    def best(self) -> Trial:
        """The best, on test data, to beat the first beyond noise, else the first."""
        first = self.trials[0]
        if self.unfair:
            return first
        better = []
        for trial in self._rivals:
            gain = trial.gains[self.monitor]
            if gain.difference > 0 and gain.p_value < 0.05:
                better.append(trial)
        return max(better, key=lambda x: x.values[self.monitor].value, default=first)

    @property
    def _rivals(self) -> list[Trial]:
        """Those tested against the first."""
        return [trial for trial in self.trials if trial.gains]

    @property
    def verdict(self) -> str:
        """The advice: take a candidate, keep the first, undecided, or no verdict."""
        first = self.trials[0].name
        best = self.best
        if self.unfair:
            return f"No verdict: {self.unfair}."
        if best.name != first:
            gained = ", p ".join(_gain(best, self.monitor))
            return f"Take {best.name}: {gained} in {self.monitor} over {first}."

        def gain_of(trial: Trial) -> float:
            return np.nan_to_num(trial.gains[self.monitor].difference, nan=-np.inf)

        leader = max(self._rivals, key=gain_of)
        gains = [trial.gains[self.monitor] for trial in self._rivals]
        detectable = max(gain.detectable for gain in gains)
        # Each interval leaves out a gain that would have shown, and that is small.
        is_excluded = all(gain.high < gain.detectable for gain in gains)
        if detectable <= SMALL_GAIN and is_excluded:
            gained = f"a gain of {detectable:.3f} in {self.monitor}"
            return f"Stay with {first}: {gained} would have shown."
        remedy = "more test data or seeds would decide"
        if math.isinf(detectable):
            remedy = "the test is too small to show any gain that is possible"
        gained = f"{leader.name} {_gain(leader, self.monitor)[0]} in {self.monitor}"
        seeds_ahead = leader.gains[self.monitor].seeds_ahead
        ahead = f"ahead in {seeds_ahead} of {self.num_seeds} seeds"
        return f"Undecided: {gained}, {ahead}; {remedy}."

    def _rows(self) -> list[list[str]]:
        """The cells of the table: name, monitored metric, gain and p-value."""
        rows = [["", f"{self.monitor} (95 %)", f"gain over {self.trials[0].name}", "p"]]
        for trial in self.trials:
            cells = [f"not tested; validation {trial.validation:.3f}", "", ""]
            if trial.values:
                value = trial.values[self.monitor]
                cells[0] = f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f})"
            if trial.gains:
                cells[1:] = _gain(trial, self.monitor)
            rows.append([trial.name, *cells])
        return [[" ".join(cell.split()) for cell in row] for row in rows]

    def _lines(self) -> list[str]:
        """What stands below the table, the verdict last."""
        settings = _number(self.num_settings, "setting")
        seeds = _number(self.num_seeds, "seed")
        lines = [
            f"Each tried {settings}, judged by {self.monitor} on validation data; "
            f"those tested were then trained on {seeds}."
        ]
        for trial in self.trials:
            others = [name for name in trial.values if name != self.monitor]
            parts = [f"{name} {trial.values[name].value:.3f}" for name in others]
            parts += [f"{name} {value:.2g}" for name, value in trial.setting.items()]
            parts.append(f"{trial.seconds:.2g} s an epoch")
            lines.append(f"{trial.name}: {', '.join(parts)}")
        return [*lines, *self.notes, self.verdict]

    def __repr__(self) -> str:
        columns = [[*column] for column in zip(*self._rows(), strict=True)]
        # A long name leaves the numbers their columns.
        for column in columns[1:]:
            column[0] = _cut(column[0], max(26, *map(len, column[1:])))
        taken = sum(max(map(len, column)) for column in columns[1:])
        room = max(12, _WIDTH - 6 - taken)
        columns[0] = [_cut(name, room) for name in columns[0]]
        widths = [max(map(len, column)) for column in columns]
        lines = []
        for row in zip(*columns, strict=True):
            cells = map(str.ljust, row, widths)
            lines.append("  ".join(cells).rstrip())
        wrapper = textwrap.TextWrapper(
            _WIDTH, subsequent_indent="  ", break_on_hyphens=False
        )
        for line in self._lines():
            lines += wrapper.wrap(line)
        return "\n".join(lines)

    def plot(self, path: PathLike | None = None) -> Figure:
        """Draws the monitored metric with its intervals; writes it if given a path."""
        from rank4class_tf.plots import new_figure  # No saved model needs that module.

        tested = [trial for trial in self.trials if trial.values]
        figure, axes = new_figure(6.4, 1.2 + 0.35 * len(tested))
        estimates = [trial.values[self.monitor] for trial in tested]
        values = [x.value for x in estimates]
        errors = np.transpose([(x.value - x.low, x.high - x.value) for x in estimates])
        axes.errorbar(values, range(len(values)), xerr=errors, fmt="o", capsize=3)
        axes.axvline(values[0], color="0.6", linestyle=":")
        names = [trial.name for trial in tested]
        axes.set_yticks(range(len(values)), names, parse_math=False)
        axes.invert_yaxis()
        label = f"{self.monitor} on test data, 95 % intervals"
        axes.set_xlabel(label, parse_math=False)
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure

    def save(self, path: PathLike) -> None:
        """Writes everything but the models as JSON."""
        trials = [{**vars(trial), "build": None} for trial in self.trials]
        content = {**vars(self), "trials": trials, "verdict": self.verdict}

        _files.write_text(path, json.dumps(_plain(content), indent=1))


def _plain(x: Any) -> Any:
    """The value in types of JSON, which has no infinite numbers."""
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, list | tuple):
        return [*map(_plain, x)]
    if isinstance(x, Mapping):
        return {key: _plain(value) for key, value in x.items()}
    return x if x is None or isinstance(x, str | int) else _plain(vars(x))


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _gain(trial: Trial, metric: str) -> list[str]:
    """A gain with its interval, and its p-value."""
    gain = trial.gains[metric]
    return [
        f"{gain.difference:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})",
        f"{gain.p_value:.2g}",
    ]


def finalists(means: dict[str, np.ndarray], number: int) -> dict[str, int]:
    """The best setting of the first and best rivals, from `[settings]` seed means."""
    first, *others = means
    best_first = sorted(others, key=lambda name: -means[name].max())
    chosen = (first, *best_first[:number])
    return {name: int(means[name].argmax()) for name in means if name in chosen}


def unfair(
    means: dict[str, np.ndarray], tests: dict[str, list[TestResult]], monitor: str
) -> str | None:
    """Why the comparison allows no verdict, or None."""
    first, *others = tests
    num_settings = len(means[first])
    num_seeds = len(tests[first])
    num_lists = int(np.count_nonzero(tests[first][0][monitor].weights))
    has_failed = {name: means[name].max() == -np.inf for name in tests}
    seeds = _number(num_seeds, "seed")
    lists = _number(num_lists, "test example")
    reasons = {
        f"{first} has no rival": not others,
        "one setting each is no tuning": num_settings == 1,
        f"{seeds} cannot tell luck from gain": num_seeds < FEW_SEEDS,
        f"{lists} cannot tell luck from gain": num_lists < FEW_LISTS,
        f"{first} had no finite loss": has_failed[first],
        "no rival had a finite loss": all(has_failed[name] for name in others),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def notes(
    settings: dict[str, list[Setting]],
    means: dict[str, np.ndarray],
    fresh: dict[str, list[float]],
    median_norm: float | None,
) -> Iterator[str]:
    """What a reader must know; `fresh` has the validation values of the fresh seeds."""
    if median_norm is not None and not 0.1 <= median_norm <= 100:
        yield (
            f"Before training, the encodings have a length of {median_norm:.2g}. Far "
            "from 1, they slow a Dense down, so that other heads seem better. Try "
            "`Rescaling` before the head."
        )
    for name, values in means.items():
        yield from _notes_of_failures(name, values, fresh.get(name, []))
    first = next(iter(means))
    if len(means[first]) < FEW_SETTINGS:
        yield "Fewer than four settings were tried: with more, the verdict may change."
        return

    for name, tried in settings.items():
        yield from _notes_of_edges(name, tried, means[name])
    if "weight_decay" in settings[first][0]:
        yield from _notes_of_decay(settings[first], means)


def _notes_of_failures(
    name: str, values: np.ndarray, fresh: list[float]
) -> Iterator[str]:
    """A candidate that had no finite loss, with some settings or fresh seeds."""
    failed = fresh.count(-math.inf)
    diverged = list(values).count(-math.inf)
    if diverged == len(values):
        yield f"{name}: no setting had a finite loss; its values mean nothing."
    elif diverged > len(values) / 2:
        yield f"{name}: {diverged} of {len(values)} settings had no finite loss."
    elif failed:
        seeds = f"{failed} of {_number(len(fresh), 'fresh seed')}"
        yield f"{name}: {seeds} had no finite loss, and are tested as they began."


# By chance the best of 12 settings is at an end in one of 6 parameters. So the ranks of
# the values must rise to it, too: this is the 5 % level of the squared correlation of
# two orders, times their length.
_RISING = 2.7


def _notes_of_edges(
    name: str, tried: list[Setting], values: np.ndarray
) -> Iterator[str]:
    """A parameter whose best value is at an end of its range wants a wider range."""
    for parameter, best in tried[values.argmax()].items():
        numbers = [setting[parameter] for setting in tried]
        ranks = np.argsort(values[np.argsort(numbers)]).argsort()
        slope = np.corrcoef(ranks, sorted(ranks))[0, 1]
        side, end = ("highest", max) if slope > 0 else ("lowest", min)
        if best == end(numbers) and slope**2 * len(ranks) > _RISING:
            yield f"{name}: the best {parameter} is the {side} that was tried."


def _notes_of_decay(
    settings: list[Setting], means: dict[str, np.ndarray]
) -> Iterator[str]:
    """A gain that the baseline reaches, too, once it has more weight decay."""
    first, *others = means
    by_decay = np.argsort([setting["weight_decay"] for setting in settings])
    little_decay = means[first][by_decay[: len(by_decay) // 2]].max()
    for name in others:
        if little_decay < means[name].max() <= means[first].max():
            yield (
                f"{name}: its gain over {first} vanishes once {first} has its best "
                "weight decay."
            )


def estimates(tests: list[TestResult]) -> dict[str, Estimate]:
    """The mean of each metric with its interval, from the tests of one candidate."""
    result = {}
    for metric in tests[0] if tests else ():
        values, weights, (low, high) = _stacked(tests, metric)
        mean = float((values @ weights).mean() / max(weights.sum(), 1e-300))
        mean = min(max(mean, low), high)  # Rounding may leave the bounds.
        interval = mean_difference(values - mean, weights, 0.95, high - low)
        ends = max(low, mean + interval.low), min(high, mean + interval.high)
        result[metric] = Estimate(mean, *ends)
    return result


def gains(tests: dict[str, list[TestResult]]) -> dict[str, dict[str, Gain]]:
    """The gain of each candidate over the first, by metric."""
    first, *others = tests
    corrected: dict[str, dict[str, Gain]] = {name: {} for name in tests}
    for metric, estimate in estimates(tests[first]).items():
        # Candidates share the lists and the seeds, so their paired differences are the
        # sample.
        baseline = _stacked(tests[first], metric)
        compared = []
        for name in others:
            differences = _stacked(tests[name], metric).values - baseline.values
            of_lists = baseline._replace(values=differences)
            compared.append((name, _tested(of_lists, len(others), estimate.value)))
        # Holm's correction: the smallest p-value counts for all tests, the next for one
        # fewer.
        compared.sort(key=lambda pair: np.nan_to_num(pair[1].p_value, nan=1.0))
        p_value = 0.0
        for rank, (name, gain) in enumerate(compared):
            num_left = len(others) - rank
            p_value = max(p_value, min(1.0, gain.p_value * num_left))
            corrected[name][metric] = dataclasses.replace(gain, p_value=p_value)
    return corrected


def _tested(differences: ListValues, num_tests: int, baseline_mean: float) -> Gain:
    """The mean of differences from a baseline, and which gains a test would show."""
    values, weights, (low, high) = differences

    def difference_at(confidence: float) -> Comparison:
        return mean_difference(values, weights, confidence, high - low)

    comparison = difference_at(0.95)
    # A true gain shows with the power 0.8 if it is so far above 0: the quantile of the
    # corrected test and that of the power, each as half of an interval's length.
    tested = difference_at(1 - 0.05 / num_tests)
    power = difference_at(0.6)
    detectable = (tested.high - tested.low + power.high - power.low) / 2
    if not baseline_mean + detectable <= high:  # More than is possible, or NaN.
        detectable = math.inf
    return Gain(
        **vars(comparison),
        detectable=detectable,
        seeds_ahead=int(sum(values @ weights > 0)),
    )


def _stacked(tests: list[TestResult], metric: str) -> ListValues:
    """A metric's values of all seeds; the seeds share the lists and their weights."""
    of_first_seed = tests[0][metric]
    values = np.stack([test[metric].values for test in tests])
    return of_first_seed._replace(values=values)
