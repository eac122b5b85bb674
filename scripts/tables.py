"""Tables of the programs, in Markdown and as CSV."""

import csv
import io
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np


class Table(NamedTuple):
    """A table of texts with a title; `right` of its last columns are set to the right."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: int = 0


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers_to_the_right: int = 0
) -> list[str]:
    """Returns the lines of a Markdown table; its last columns may be set to the right."""
    left = len(head) - numbers_to_the_right
    rule = ["---"] * left + ["---:"] * numbers_to_the_right
    return [f"| {' | '.join(head)} |", f"|{'|'.join(rule)}|"] + [
        f"| {' | '.join(row)} |" for row in rows
    ]


def show(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers_to_the_right: int = 0,
    path: pathlib.Path | None = None,
) -> None:
    """Prints a table, and writes it as CSV if there is a path."""
    print("\n".join(table(head, rows, numbers_to_the_right)), flush=True)
    if path:
        write_csv(path, head, rows)


def show_all(
    found: Iterable[tuple], path: pathlib.Path | None = None, about: Sequence[str] = ()
) -> None:
    """Prints each `Table` when it is there, and writes those so far as CSV, with lines above."""
    if path:  # Before anything is measured.
        path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"# {line}\n" for line in about)
    for each in (Table(*parts) for parts in found):
        lines = table(each.head, each.rows, each.right)
        print("\n".join([f"**{each.title}**", "", *lines, ""]), flush=True)
        text += as_csv(each.head, each.rows, each.title)
        if path:
            path.write_text(text, encoding="utf-8")


def write_csv(path: pathlib.Path, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Writes a table as CSV, and makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_csv(head, rows))


def as_csv(head: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> str:
    """Returns a table as CSV, with a line above it for a title."""
    text = io.StringIO()
    if title is not None:
        print(f"# {title}", file=text)
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def plus_minus(values: Sequence[float], digits: int = 3) -> str:
    """Returns "mean ± sample standard deviation" (over n - 1); of one value only the value."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"
