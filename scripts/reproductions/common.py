"""What programs of this folder share: options, runs kept in files, the best epoch."""

import hashlib
import json
import math
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from rank4class_tf import _files
from scripts import command_line


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
    path, seed = pathlib.Path, command_line.seed
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
    add, count = parser.add_value, command_line.count
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


def train_to_best(
    model: Any,
    epochs: int,
    train: Callable[[int], Any],
    evaluate: Callable[[], Mapping[str, float]],
    metric: str,
    patience: int,
    every: int = 1,
) -> tuple[list[dict[str, float]], dict[str, float]]:
    """Trains a model and leaves it with the weights of the best epoch.

    Args:
        model: a Keras model.
        epochs: how many, at most.
        train: a function of an epoch's number that trains for that epoch.
        evaluate: a function that returns validation figures.
        metric: the key of the figure that decides, the higher the better.
        patience: how many epochs to go on without a better one.
        every: how many epochs lie between evaluations; the last one is evaluated too.

    Returns:
        The figures of the evaluated epochs, with `epoch` and `cpu_seconds` of training
        so far, and the best of these.
    """
    history: list[dict[str, float]] = []
    best: dict[str, float] = {}
    weights, seconds = None, 0.0
    for epoch in range(1, epochs + 1):
        start = time.process_time()
        train(epoch)
        seconds += time.process_time() - start
        if epoch % every and epoch != epochs:
            continue
        history.append({"epoch": epoch, "cpu_seconds": seconds, **evaluate()})
        is_first = not best or math.isnan(best[metric])
        if is_first or history[-1][metric] > best[metric]:
            best, weights = history[-1], model.get_weights()
        if epoch - best["epoch"] >= patience:
            break
    model.set_weights(weights)
    return history, best
