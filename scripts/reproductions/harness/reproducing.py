"""What the reproductions share: the best epoch, the order of batches, and Markdown."""

import dataclasses
import json
import time

import numpy as np

from rank4class_tf import _files


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


def plus_minus(values, digits=3):
    """Mean ± standard deviation, over n - 1, as a text; of a single value the mean alone."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def table(head, rows):
    """Lines of a Markdown table; cells are texts."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def report(folder, text, runs, draw, plot):
    """Writes and prints the results.

    Args:
        folder: where `results.md`, `results.json` and the plot go.
        text: the Markdown.
        runs: what the JSON holds.
        draw: a function that draws the plot to a path; it may miss matplotlib.
        plot: the name of the plot's file.
    """
    _files.write_text(folder / "results.md", text)
    _files.write_text(folder / "results.json", json.dumps(runs, indent=1))
    print(text)
    try:
        draw(folder / plot)
    except ImportError as error:
        print(f"No plot without matplotlib: {error}.")


def in_random_order(splits):
    """A function of a seed: splits with the same training batches, in orders that follow from it.

    What is read once stays in memory.
    """
    parts = {part: getattr(splits, part).cache() for part in ("train", "validation", "test")}
    counts = {part: sum(1 for _ in batches) for part, batches in parts.items()}  # Reads them once.

    def in_order_of(seed):
        train = parts["train"].shuffle(counts["train"], seed=seed)
        return dataclasses.replace(splits, **parts | {"train": train})

    return in_order_of
