"""What programs of this folder share: options, studies of kept runs, the best epoch.

A study tries the settings of one method with the tuning seed, chooses by a figure of
the validation part, and tests what it chose with each seed. A program says what its
methods are, how a run is made, and what its table shows.
"""

import argparse
import functools
import hashlib
import json
import math
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rank4class_tf import _files, _intervals
from scripts import command_line
from scripts.tables import plus_minus


def parser(
    module: Any, description: str | None, quick: Mapping[str, Any], seeds: int = 3
) -> command_line.Parser:
    """A parser with `--out`, `--csv`, `--seeds`, `--tuning-seed` and `--quick`.

    Args:
        module: the `__spec__` of the script.
        description: its docstring.
        quick: the defaults of the short form.
        seeds: how many seeds are reported by default.
    """
    result = command_line.Parser(module, description, quick)
    folder = pathlib.Path("out", module.name.rpartition(".")[2])
    path = pathlib.Path
    seed = command_line.seed
    result.add_value("--out", path, folder, "folder of runs; a second call goes on")
    result.add_value("--csv", path, None, "a file for the tables")
    text = "the seeds that are reported"
    result.add_values("--seeds", seed, list(range(seeds)), text)
    text = "the seed for which settings are chosen"
    result.add_value("--tuning-seed", seed, 100, text)
    return result


def add_files(parser: command_line.Parser, text: str) -> None:
    """Adds one file or more, without the name of an option."""
    parser.add_argument(
        "files", nargs="+", type=pathlib.Path, metavar="FILE", help=text
    )


def add_epochs(
    parser: command_line.Parser, epochs: int, every: int, patience: int, figure: str
) -> None:
    """Adds `--epochs`, `--evaluate-every` and `--patience`, with these defaults.

    Args:
        parser: the command line.
        epochs: how many, at most.
        every: how many epochs lie between evaluations.
        patience: how many epochs to go on without a better figure.
        figure: its name.
    """
    add = parser.add_value
    count = command_line.count
    add("--epochs", count, epochs, "at most")
    add("--evaluate-every", count, every, "epochs between evaluations")
    add("--patience", count, patience, f"epochs to go on without a better {figure}")


def kept(
    folder: pathlib.Path,
    settings: Mapping[str, Any],
    make: Callable[[], Mapping[str, Any]],
) -> dict[str, Any]:
    """A run from its file, or made now and put there.

    Args:
        folder: where the files are; their names follow from the settings.
        settings: all that the run depends on, values that JSON knows.
        make: a function that does the run.

    Returns:
        The settings, what `make` returned, and `cpu_seconds`, which it took.
    """
    text = json.dumps(settings, sort_keys=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"
    if not path.exists():
        start = time.process_time()
        run = {**settings, **make()}
        run["cpu_seconds"] = time.process_time() - start
        folder.mkdir(parents=True, exist_ok=True)
        _files.write_text(path, json.dumps(run))
        of_run = ", ".join(map(str, settings.values()))
        print(f"{of_run}: {run['cpu_seconds']:.0f} CPU s", flush=True)
    return json.loads(path.read_text())


class Run(NamedTuple):
    """A run of a study.

    Attributes:
        settings: what it was made with.
        validation: the figures of its best epoch on the validation part, if it has any.
        test: those of the test part, if it was used.
        kept: all that its file holds.
    """

    settings: Any
    validation: dict[str, float]
    test: dict[str, Any]
    kept: dict[str, Any]


class Study:
    """The runs of one method.

    Args:
        args: the options of `parser`.
        make: a function of settings, a seed and whether to test. It does the run and
            returns the figures "validation", "test" if so, and what else to keep.
        select_by: the validation figure that chooses settings, the higher the better.
        options: the names of the options on which all runs depend.
        about: what else they depend on beside settings and seed, values that JSON
            knows.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        make: Callable[[Any, int, bool], Mapping[str, Any]],
        select_by: str,
        options: Iterable[str],
        **about: Any,
    ) -> None:
        self.args = args
        self.make = make
        self.select_by = select_by
        self.about = about | command_line.chosen(args, *options)

    def run(self, settings: Any, seed: int, test: bool = False) -> Run:
        """A run with these settings, made now or before."""
        of_run = {**self.about, "settings": settings, "seed": seed, "test": test}
        make = functools.partial(self.make, settings, seed, test)
        found = kept(self.args.out, of_run, make)
        # In the file, the figures of the test replace the setting of that name.
        figures = found["test"] if test else {}
        return Run(settings, found.get("validation", {}), figures, found)

    def tried(self, choices: Iterable[Any]) -> list[Run]:
        """A run of each of some settings with the tuning seed."""
        return [self.run(settings, self.args.tuning_seed) for settings in choices]

    def tested(self, settings: Any) -> list[Run]:
        """A run for each seed, with its figures on the test part."""
        return [self.run(settings, seed, test=True) for seed in self.args.seeds]

    def quality(self, run: Run) -> float:
        """What chooses among runs."""
        return run.validation[self.select_by]

    def best(self, runs: Iterable[Run]) -> Run:
        """The best run on the validation part."""
        return max(runs, key=self.quality)


def reached(runs: Sequence[Run], names: Iterable[str], digits: int = 3) -> list[str]:
    """Figures of the test part, each as a mean and a deviation over the seeds."""
    return [plus_minus([run.test[name] for run in runs], digits) for name in names]


def mean_kept(runs: Sequence[Run], name: str) -> str:
    """The mean of a number that the files of runs hold, such as `cpu_seconds`."""
    return f"{np.mean([run.kept[name] for run in runs]):.0f}"


def best_epochs(runs: Sequence[Run]) -> str:
    """The best epoch of each run that has epochs."""
    return ", ".join(str(run.validation.get("epoch", "–")) for run in runs)


def gained(gains: np.ndarray, digits: int = 3) -> str:
    """The mean of gains with its 95 % interval, by Student's T."""
    found = _intervals.interval(gains, np.ones(len(gains)), 0.95)
    mean, low, high = (f"{x:+.{digits}f}" for x in (found.value, found.low, found.high))
    return f"{mean} ({low} to {high})"


class Trained(NamedTuple):
    """The figures of a training.

    Attributes:
        history: those of each epoch that was evaluated, with `epoch`, and `cpu_seconds`
            of training so far.
        best: those of the best of these epochs.
    """

    history: list[dict[str, float]]
    best: dict[str, float]

    @property
    def epoch_seconds(self) -> float:
        """The CPU seconds of an epoch of training."""
        last = self.history[-1]
        return last["cpu_seconds"] / last["epoch"]


def train_to_best(
    model: Any,
    epochs: int,
    train: Callable[[int], Any],
    evaluate: Callable[[], Mapping[str, float]],
    metric: str,
    patience: int,
    every: int = 1,
) -> Trained:
    """Trains a model and leaves it with the weights of the best epoch.

    Args:
        model: a Keras model.
        epochs: how many, at most.
        train: a function of an epoch's number that trains for that epoch.
        evaluate: a function that returns validation figures.
        metric: the key of the figure that decides, the higher the better.
        patience: how many epochs to go on without a better one.
        every: how many epochs lie between evaluations; the last one is evaluated too.
    """
    history: list[dict[str, float]] = []
    best: dict[str, float] = {}
    weights = None
    seconds = 0.0
    for epoch in range(1, epochs + 1):
        start = time.process_time()
        train(epoch)
        seconds += time.process_time() - start
        if epoch % every and epoch != epochs:
            continue
        history.append({"epoch": epoch, "cpu_seconds": seconds, **evaluate()})
        is_first = not best or math.isnan(best[metric])
        if is_first or history[-1][metric] > best[metric]:
            best = history[-1]
            weights = model.get_weights()
        if epoch - best["epoch"] >= patience:
            break
    model.set_weights(weights)
    return Trained(history, best)
