"""The results of several runs as a table and as a plot."""

import pathlib
from typing import Any

METRICS = {"Top-1": "top_k_accuracy@1", "Top-5": "top_k_accuracy@5", "NDCG@5": "ndcg@5"}
SELECT_BY = "NDCG@5"


def markdown(rows: list[dict[str, Any]]) -> str:
    """Returns the table of the test metrics.

    Args:
        rows: what `train` returned, one run each.
    """
    lines = [
        "| loss | head | " + " | ".join(METRICS) + " | best epoch |",
        "|---|---|" + "---:|" * (len(METRICS) + 1),
    ]
    for row in rows:
        values = " | ".join(f"{row['test'][column]:.4f}" for column in METRICS)
        lines.append(f"| {row['loss']} | {row['head']} | {values} | {row['best_epoch']} |")
    return "\n".join(lines) + "\n"


def plot(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Draws the validation metrics over the epochs: a column per metric, a row per head.

    Args:
        rows: what `train` returned, one run each.
        path: the picture.

    Raises:
        ImportError: without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise ImportError(
            f"Plots need matplotlib: pip install 'rank4class_tf[plots]'. Received: {error}."
        ) from error
    heads, losses = (list(dict.fromkeys(row[key] for row in rows)) for key in ("head", "loss"))
    figure = Figure(figsize=(4.5 * len(METRICS), 3.2 * len(heads)), layout="constrained")
    grid = figure.subplots(len(heads), len(METRICS), sharex=True, sharey="col", squeeze=False)
    handles = {}
    for head, panels in zip(heads, grid, strict=True):
        for column, panel in zip(METRICS, panels, strict=True):
            for row in (row for row in rows if row["head"] == head):
                values, best = row["validation"][column], row["best_epoch"]
                color = f"C{losses.index(row['loss'])}"
                (line,) = panel.plot(range(1, len(values) + 1), values, color=color)
                panel.plot(best, values[best - 1], "o", color=color)
                handles[row["loss"]] = line
            panel.set_title(f"{column}, {head} head")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            panel.grid(alpha=0.3)
    for panel in grid[-1]:
        panel.set_xlabel("epoch")
    figure.suptitle("Validation metrics; a dot marks the epoch whose weights are kept")
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles))
    figure.savefig(path, dpi=120)
