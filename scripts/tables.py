"""Tables of the programs, in Markdown and as CSV."""

import csv
import io
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np


class Table(NamedTuple):
    """A table of texts with a title; its last `right` columns are set to the right."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: int = 0

    def markdown(self) -> str:
        """The table in Markdown, without the title."""
        left = len(self.head) - self.right
        rule = "|".join(["---"] * left + ["---:"] * self.right)
        head, *rows = (f"| {' | '.join(row)} |" for row in (self.head, *self.rows))
        return "\n".join([head, f"|{rule}|", *rows])

    def csv(self) -> str:
        """The table as CSV, below a line for its title, if it has one."""
        text = io.StringIO()
        text.write(f"# {self.title}\n" if self.title else "")
        csv.writer(text, lineterminator="\n").writerows([self.head, *self.rows])
        return text.getvalue()


def show(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: int = 0,
    path: pathlib.Path | None = None,
) -> None:
    """Prints a table, and writes it as CSV if there is a path."""
    print(Table("", head, rows, right).markdown(), flush=True)
    if path:
        write_csv(path, head, rows)


def show_all(
    found: Iterable[Table], path: pathlib.Path | None = None, about: Sequence[str] = ()
) -> None:
    """Prints each `Table` at once; writes those so far as CSV, with lines above."""
    if path:  # Before anything is measured.
        path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"# {line}\n" for line in about)
    for table in found:
        print(f"**{table.title}**\n\n{table.markdown()}\n", flush=True)
        text += table.csv()
        if path:
            path.write_text(text, encoding="utf-8")


def write_csv(
    path: pathlib.Path, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Writes a table as CSV, and makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Table("", head, rows).csv(), encoding="utf-8")


def plus_minus(values: Sequence[float], digits: int = 3) -> str:
    """Returns "mean ± sample standard deviation" (over n - 1), or a single value."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"
