"""Runs that are made once and kept in files."""

import json
import pathlib
import time
import warnings
from collections.abc import Callable, Collection
from typing import Any

from rank4class_tf import _files


def cached(
    path: pathlib.Path,
    settings: dict[str, Any],
    make: Callable[[], dict[str, Any]],
    needs: Collection[str] = (),
    say: Callable[[str], Any] = print,
) -> dict[str, Any]:
    """A run from its file, or made now and put there.

    Args:
        path: the file.
        settings: what the run depends on, values that JSON knows; a file with others, or that
            cannot be read, is not used.
        make: a function that does the run and returns a dict.
        needs: keys that the run must have.
        say: takes a line about a run that was made.

    Returns:
        `settings`, also as a dict `depends_on`, what `make` returned and `cpu_seconds`, which it
        took.
    """
    settings = json.loads(json.dumps(settings))
    if path.exists():
        try:
            result = json.loads(path.read_text())
            # Equal, not a part: a run with fewer settings is another one.
            if result.get("depends_on") == settings and set(needs) <= result.keys():
                return result
        except (ValueError, AttributeError) as error:
            warnings.warn(f"{path} cannot be read and is made anew: {error!r}.", stacklevel=2)
    start = time.process_time()
    result = {**settings, **make(), "depends_on": settings}
    result["cpu_seconds"] = time.process_time() - start
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write_text(path, json.dumps(result))
    say(f"{path.stem}: {result['cpu_seconds']:.0f} CPU s")
    return result


def train_to_best(model, epochs, evaluate_every, train, evaluate, metric, patience):
    """Trains a model and leaves it with the weights of the best epoch.

    Args:
        model: a Keras model.
        epochs: how many, at most.
        evaluate_every: how many epochs lie between evaluations; the last one is evaluated too.
        train: a function of an epoch's number that trains for that epoch.
        evaluate: a function that returns a dict of validation figures.
        metric: the key of the figure that decides, the higher the better.
        patience: how many epochs to go on without a better one.

    Returns:
        The figures of the evaluated epochs, a list of dicts with `epoch` and `cpu_seconds` of
        training so far, and the best of these.
    """
    history, best, best_weights, seconds = [], None, None, 0.0
    for epoch in range(1, epochs + 1):
        start = time.process_time()
        train(epoch)
        seconds += time.process_time() - start
        if epoch % evaluate_every and epoch != epochs:
            continue
        history.append({"epoch": epoch, "cpu_seconds": seconds, **evaluate()})
        if best is None or history[-1][metric] > best[metric]:
            best, best_weights = history[-1], model.get_weights()
        if epoch - best["epoch"] >= patience:
            break
    model.set_weights(best_weights)
    return history, best
