"""The results of several runs as a table and as a plot."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from rank4class_tf import _files
from rank4class_tf.evaluation import Evaluation, compare
from scripts import tables

# The columns of the tables: title -> name of the metric.
METRICS = {"Top-1": "top_k_accuracy_at_1", "Top-5": "top_k_accuracy_at_5", "NDCG@5": "ndcg_at_5"}
# The column by which epochs and learning rates are chosen.
SELECT_BY = "NDCG@5"

# Differences less likely than this without a cause count as differences.
_SIGNIFICANT = 0.05


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        loss: the name of a loss.
        head: the name of a head.
        evaluation: of the test part, on average over the seeds.
    """

    loss: str
    head: str
    evaluation: Evaluation


def markdown(rows: Sequence[Row]) -> str:
    """Returns the table of the test metrics, and of how far each row is above or below the first.

    Args:
        rows: one for each loss and head; the others are compared with the first.
    """
    lines = []
    for row in rows:
        cells = [_interval(row.evaluation[column], ".3f") for column in METRICS]
        if row is rows[0]:
            cells += ["", ""]
        else:
            comparison = compare(row.evaluation, rows[0].evaluation)[SELECT_BY]
            cells += [_interval(comparison, "+.3f"), f"{comparison.p_value:.4f}"]
        lines.append([row.loss, row.head, *cells])
    head = ["loss", "head", *METRICS, f"{SELECT_BY} over the first row", "p"]
    return "\n".join(tables.table(head, lines, len(METRICS) + 2)) + "\n"


def _interval(of, form):
    value = of.difference if hasattr(of, "difference") else of.value
    return f"{value:{form}} ({of.low:{form}} to {of.high:{form}})"


def verdict(rows: Sequence[Row]) -> str:
    """Says in a sentence which rows differ from the first beyond noise.

    Holm's correction keeps the probability of one error among all rows below 5 %.
    """
    first, *others = rows
    compared = [(compare(row.evaluation, first.evaluation)[SELECT_BY], row) for row in others]
    compared.sort(key=lambda pair: pair[0].p_value)
    better: list[str] = []
    worse: list[str] = []
    for index, (comparison, row) in enumerate(compared):
        if comparison.p_value * (len(compared) - index) >= _SIGNIFICANT:
            break
        name = f"{row.loss} with {row.head}"
        (better if comparison.difference > 0 else worse).append(name)
    baseline = f"{first.loss} with {first.head}"
    if not better and not worse:
        return f"No row differs from {baseline} in {SELECT_BY} beyond noise."
    parts = [
        f"{', '.join(names)}: {word} than {baseline}"
        for word, names in (("better", better), ("worse", worse))
        if names
    ]
    return f"{SELECT_BY}, beyond noise: {'; '.join(parts)}."


def plot(rows: Sequence[Row], path: pathlib.Path) -> None:
    """Draws the test metrics with their intervals, a panel for each metric.

    Args:
        rows: as for `markdown`.
        path: the picture.
    """
    from matplotlib.figure import Figure

    heads = list(dict.fromkeys(row.head for row in rows))
    figure = Figure(figsize=(4 * len(METRICS), 1.4 + 0.3 * len(rows)), layout="constrained")
    panels = figure.subplots(1, len(METRICS), sharey=True, squeeze=False)[0]
    for column, panel in zip(METRICS, panels, strict=True):
        for place, row in enumerate(rows):
            estimate = row.evaluation[column]
            panel.errorbar(
                estimate.value,
                place,
                xerr=[[estimate.value - estimate.low], [estimate.high - estimate.value]],
                fmt="o",
                capsize=3,
                color=f"C{heads.index(row.head)}",
            )
        panel.axvline(rows[0].evaluation[column].value, color="0.6", linestyle=":", zorder=0)
        panel.set_title(column)
        panel.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(rows)), [f"{row.loss}, {row.head}" for row in rows])
    panels[0].invert_yaxis()
    figure.suptitle("Test part, 95 % intervals; dotted: the first row")
    save_figure(figure, path)


def save_figure(figure: Any, path: pathlib.Path) -> None:
    """Writes a figure of matplotlib, which gets its name when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def write_report(
    folder: pathlib.Path,
    text: str,
    runs: Any,
    draw: Callable[[pathlib.Path], Any],
    plot: str,
    name: str = "results.md",
) -> None:
    """Writes and prints the results.

    Args:
        folder: where the files go.
        text: the Markdown.
        runs: what results.json holds.
        draw: a function that draws the plot to a path; it may miss matplotlib.
        plot: the name of the plot's file.
        name: the name of the Markdown's file.
    """
    _files.write_text(folder / name, text)
    _files.write_text(folder / "results.json", json.dumps(runs, indent=1))
    print(text)
    try:
        draw(folder / plot)
    except ImportError as error:
        print(f"No plot without matplotlib: {error}.")
