"""What `try_out` returns: estimates, gains, a verdict, and notes on how far to trust them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
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
# Of a candidate and seed: metric -> values of the lists, their weights, and the bounds of a value.
TestResult: TypeAlias = dict[str, Sequence]


class Training(NamedTuple):
    """A finished training: the best validation value, and the seconds of an epoch."""

    value: float
    seconds: float
    setting: Setting


@dataclasses.dataclass(frozen=True)
class Trial:
    """What `try_out` found out about a candidate.

    Attributes:
        values: name of a metric -> its `Estimate` on the test data.
        gains: name of a metric -> its `Comparison` with the first candidate, which has none.
        settings: for each seed, the chosen learning rate, weight decay and own parameter.
        seconds: per epoch, the median.
        build: returns a new model, compiled with the settings of the first seed.
    """

    name: str
    values: dict[str, Estimate]
    gains: dict[str, Comparison]
    settings: list[Setting]
    seconds: float
    build: Callable[[], keras.Model] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, repr=False)
class TryOut:
    """The result of `try_out`; it prints as a table with a verdict.

    Attributes:
        trials: a `Trial` for each candidate, in the order given.
        monitor: the metric by which settings and epochs were chosen.
        num_settings: how many settings each candidate tried for each seed.
        notes: what to know before you trust the table.
        noise: the estimate of wrong labels, or None: their `"share"`; `"concentration"`, the share
            of them that are the most frequent confusion of their class, 1 / (number of classes - 1)
            if spread evenly; and the first `"confusions"`: true class, label, number of examples.
    """

    trials: list[Trial]
    monitor: str
    num_settings: int
    notes: list[str]
    noise: dict[str, Any] | None

    @property
    def best(self) -> Trial:
        """The best on the test data of those that beat the first beyond noise, else the first."""
        gains = [(trial, trial.gains.get(self.monitor)) for trial in self.trials]
        better = [t for t, gain in gains if gain and gain.difference > 0 and gain.p_value < 0.05]
        if len(self.trials[0].settings) == 1:  # One seed cannot tell luck from gain.
            better = []
        return max(better, key=lambda t: t.values[self.monitor].value, default=self.trials[0])

    @property
    def verdict(self) -> str:
        """The recommendation, in one sentence."""
        first, best = self.trials[0].name, self.best
        if best.name == first:
            return f"Stay with {first}: nothing is better in {self.monitor} beyond noise."
        return f"Take {best.name}: {_gain(best, self.monitor)} in {self.monitor} over {first}."

    def __repr__(self) -> str:
        rows = [["", *self.trials[0].values, f"gain in {self.monitor}", "settings", "s/epoch"]]
        for trial in self.trials:
            values = [f"{x.value:.3f} ({x.low:.3f} to {x.high:.3f})" for x in trial.values.values()]
            by_name = {name: [s[name] for s in trial.settings] for name in trial.settings[0]}
            settings = ", ".join(f"{name} {np.median(x):.2g}" for name, x in by_name.items())
            gain = _gain(trial, self.monitor)
            rows.append([trial.name, *values, gain, settings, f"{trial.seconds:.2g}"])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        num_seeds = len(self.trials[0].settings)
        lines.append(f"Each tried {self.num_settings} settings for each of {num_seeds} seeds.")
        return "\n".join([*lines, *self.notes, self.verdict])

    def plot(self, path: PathLike | None = None) -> Figure:
        """Draws the monitored metric with its intervals, and writes it if there is a path."""
        from rank4class_tf.plots import new_figure  # No saved model needs that module.

        figure, axes = new_figure(6.4, 1.2 + 0.35 * len(self.trials))
        estimates = [trial.values[self.monitor] for trial in self.trials]
        values = [x.value for x in estimates]
        errors = np.transpose([(x.value - x.low, x.high - x.value) for x in estimates])
        axes.errorbar(values, range(len(values)), xerr=errors, fmt="o", capsize=3)
        axes.axvline(values[0], color="0.6", linestyle=":")
        axes.set_yticks(range(len(values)), [trial.name for trial in self.trials], parse_math=False)
        axes.invert_yaxis()
        axes.set_xlabel(f"{self.monitor} on test data, 95 % intervals")
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure

    def save(self, path: PathLike) -> None:
        """Writes everything but the models as JSON."""
        trials = [{**vars(trial), "build": None} for trial in self.trials]
        content = {**vars(self), "trials": trials, "verdict": self.verdict}
        _files.write_text(path, json.dumps(content, indent=1, default=vars))


def _gain(trial: Trial, metric: str) -> str:
    gain = trial.gains.get(metric)
    text = "{0.difference:+.3f} ({0.low:+.3f} to {0.high:+.3f}), p {0.p_value:.2g}"
    return text.format(gain) if gain else ""


def notes(
    trainings: dict[str, list[list[Training]]],
    chosen: dict[str, list[Setting]],
    median_norm: float | None,
    names_ahead: list[str],
) -> Iterator[str]:
    """What a reader must know: `median_norm` is of encodings, `names_ahead` gain on the first."""
    if median_norm is not None and not 0.1 <= median_norm <= 100:
        yield (
            f"Before training, the encodings have a length of {median_norm:.2g}. Far from 1, they "
            "slow a Dense down, so that other heads seem better. Try `Rescaling` before the head."
        )
    (first, baseline), *_ = trainings.items()
    if len(baseline) == 1:
        yield "One seed: the intervals leave out the luck of training, and prove no gain."
    for name, by_seed in trainings.items():
        if any(max(training.value for training in tries) == -np.inf for tries in by_seed):
            yield f"{name}: in a seed, no setting had a finite loss; its values mean nothing."
    if len(baseline[0]) < 4:
        yield "Fewer than four settings were tried: tune more before you decide."
        return
    # A parameter whose best value is at the end of its range in most seeds wants a wider range.
    for name, by_seed in trainings.items():
        for parameter in chosen[name][0]:
            best = [setting[parameter] for setting in chosen[name]]
            tried = [[training.setting[parameter] for training in tries] for tries in by_seed]
            for side, end_of in (("lowest", min), ("highest", max)):
                at_end = [x == end_of(values) for x, values in zip(best, tried, strict=True)]
                if 2 * sum(at_end) > len(at_end):
                    yield f"{name}: the best {parameter} is the {side} that was tried."
    if "weight_decay" not in baseline[0][0].setting:
        return
    # A gain over a baseline with little decay may come from the decay, not from the candidate.
    little_decay = []
    for tries in baseline:
        by_decay = sorted(tries, key=lambda training: training.setting["weight_decay"])
        little_decay.append(by_decay[: len(by_decay) // 2])
    little_decay_value, best_value = _mean_of_best(little_decay), _mean_of_best(baseline)
    for name in names_ahead:
        if little_decay_value < _mean_of_best(trainings[name]) <= best_value:
            yield f"{name}: its gain over {first} vanishes once {first} has its best weight decay."


def _mean_of_best(by_seed: list[list[Training]]) -> np.floating:
    return np.mean([max(training.value for training in tries) for tries in by_seed])


def estimate(tests: list[TestResult], metric: str) -> Estimate:
    """The mean of a metric with its interval, from the tests of one candidate."""
    values, weights, (low, high) = _values(tests, metric)
    mean = float((values @ weights).mean() / max(weights.sum(), 1e-300))
    interval = mean_difference(values - mean, weights, 0.95, high - low)
    return Estimate(mean, max(low, mean + interval.low), min(high, mean + interval.high))


def gains(tests: dict[str, list[TestResult]]) -> dict[str, dict[str, Comparison]]:
    """Comparisons of each candidate with the first, by metric."""
    first, *others = tests
    corrected: dict[str, dict[str, Comparison]] = {name: {} for name in tests}
    for metric in tests[first][0]:
        # Candidates share the lists and the seeds, so their paired differences are the sample.
        baseline, weights, (low, high) = _values(tests[first], metric)
        comparisons = []
        for name in others:
            differences = _values(tests[name], metric)[0] - baseline
            comparisons.append((name, mean_difference(differences, weights, 0.95, high - low)))
        # Holm's correction: the smallest p-value counts for all tests, the next for one fewer.
        comparisons.sort(key=lambda pair: pair[1].p_value)
        p_value = 0.0
        for rank, (name, comparison) in enumerate(comparisons):
            p_value = max(p_value, min(1.0, comparison.p_value * (len(others) - rank)))
            corrected[name][metric] = dataclasses.replace(comparison, p_value=p_value)
    return corrected


def _values(tests: list[TestResult], metric: str) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """The values `[seeds, lists]` of a metric, the weights of the lists, and the bounds."""
    _, weights, bounds = tests[0][metric]
    values = np.array([test[metric][0] for test in tests])
    return values, np.array(weights), [*map(float, bounds)]
