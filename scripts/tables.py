"""Markdown tables of the benchmarks and the reproductions."""

from collections.abc import Sequence

import numpy as np


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers_to_the_right: int = 0
) -> list[str]:
    """Returns the lines of a Markdown table.

    Args:
        head: the titles of the columns.
        rows: the cells of each row, as texts.
        numbers_to_the_right: how many columns at the end are set to the right.
    """
    left = len(head) - numbers_to_the_right
    rule = ["---"] * left + ["---:"] * numbers_to_the_right
    return [f"| {' | '.join(head)} |", f"|{'|'.join(rule)}|"] + [
        f"| {' | '.join(row)} |" for row in rows
    ]


def plus_minus(values: Sequence[float], digits: int = 3) -> str:
    """Returns "mean ± standard deviation", over n - 1; of a single value only the value."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"
