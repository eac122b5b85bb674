"""Draws the main tables of the pages of results, from the numbers that the pages show.

python -m scripts.reproductions.draw_results --out docs/images
"""

import dataclasses
import pathlib
import re

from matplotlib.figure import Figure

from scripts import command_line
from scripts.reproductions import harness

PAGES = pathlib.Path(__file__).parents[2] / "docs" / "results"
_NUMBER = r"([+-]?[\d,]*\.?\d+)"
_CELL = re.compile(rf"\W*?{_NUMBER}(?: ± {_NUMBER}| \({_NUMBER} to {_NUMBER}\))?")


@dataclasses.dataclass(frozen=True)
class Panel:
    """What is drawn of a table.

    Attributes:
        heading: the heading below which the table is the first with these columns.
        columns: the titles of the columns of numbers, each drawn in a colour.
        names: how many of the first columns name a row.
        only: the part of the name that all rows drawn have; the picture shows it in the title.
        label: of the axis of numbers; the column's title if there is one.
        scale: of the axis of numbers, "linear" or "log".
        zero: whether to draw a line at 0.
        title: of the panel; the heading if there is none.
    """

    heading: str
    columns: tuple[str, ...]
    names: int = 1
    only: str = ""
    label: str = ""
    scale: str = "linear"
    zero: bool = False
    title: str = ""

    def rows(self, text):
        """The rows of the table: the name, and the low, middle and high number of each column."""
        section = text[re.search(rf"^#+ {re.escape(self.heading)}$", text, re.MULTILINE).end() :]
        for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
            head, _, *rows = (
                [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()
            )
            if set(self.columns) <= set(head):
                break
        else:
            raise ValueError(f"No table with {self.columns} below {self.heading!r}.")
        first = ""
        for row in rows:
            first = row[0] or first
            parts = [part.replace("`", "") for part in [first, *row[1 : self.names]] if part]
            numbers = [_interval(row[head.index(column)]) for column in self.columns]
            if any(numbers) and (not self.only or self.only in parts):
                yield ", ".join(part for part in parts if part != self.only), numbers


def _interval(cell):
    found = _CELL.match(cell)
    if not found:
        return None
    middle, error, low, high = (g and float(g.replace(",", "")) for g in found.groups())
    if error is not None:
        low, high = middle - error, middle + error
    return (middle,) * 3 if low is None else (low, middle, high)


_ECE = ("ECE %, softmax", "ECE %, calibrated")
_LOSSES = ("SoftmaxCE", "PairLogLoss", "ApproxNDCG", "Gumbel-ApproxNDCG", "MSE", "Rankmax")

PICTURES = {
    "which_loss": [
        Panel(
            heading,
            ("NDCG@5 over the first row",),
            names=2,
            only="dot_product",
            label="NDCG@5 over that of softmax",
            zero=True,
        )
        for heading in (
            "GoEmotions, one label",
            "MovieLens, a user's films",
            "WordNet, concepts with many glosses",
            "Digits, five examples of each class",
        )
    ],
    "learning_to_rank": [
        Panel(heading, ("NDCG@5",))
        for heading in ("Graded lists", "Few graded lists", "Noisy grades", "One positive a list")
    ],
    "rank4class": [
        Panel("A pretrained transformer, frozen", _LOSSES, 2, only="Top-1"),
        Panel("A pretrained transformer, frozen", _LOSSES, 2, only="NDCG@5"),
    ],
    "rare_classes": [
        Panel("How it was measured", ("Top-1", "macro Top-1"), title="Top-1"),
        Panel("How it was measured", ("NDCG@5", "macro NDCG@5"), title="NDCG@5"),
    ],
    "retrieval": [
        Panel("Retrieval: films for users", ("Recall@10",)),
        Panel("Rankmax in two-tower models", ("Recall@10",), 2),
        Panel("Beside keras-rs and TensorFlow Recommenders", ("Recall@10",)),
    ],
    "snm": [
        Panel("WordNet", ("P@1", "R@5")),
        Panel("WordNet, all classes in each step", ("P@1", "R@5")),
    ],
    "calibration": [
        Panel("Digits, ten images per class", _ECE, label="ECE, %"),
        Panel("GoEmotions, 28 emotions", _ECE, label="ECE, %"),
    ],
    "heads": [
        Panel(
            "Heads: time and memory",
            ("plain MB, graph / XLA", "ours MB, graph / XLA"),
            2,
            label="MB of a step in a graph",
        )
    ],
    "sorters": [
        Panel(
            "Time, 32 lists",
            ("LaplaceSorter", "SoftRankSorter, graph", "fast-soft-sort", "torchsort"),
            label="forward pass and gradient, ms",
            scale="log",
        ),
        Panel(
            "Accuracy, 10,000 lists of SoDeep's mixture at d = 100",
            ("mean error of ranks over d",),
        ),
    ],
    "speed": [
        Panel(
            "Peers",
            ("graph ÷ softmax",),
            label="time ÷ softmax, in a graph",
            scale="log",
            title="Losses and their peers, 64 × 1,000",
        )
    ],
}


def draw(page, path):
    """Draws the panels of a page one below the other."""
    text = (PAGES / f"{page}.md").read_text()
    panels = [(panel, list(panel.rows(text))) for panel in PICTURES[page]]
    heights = [len(rows) + 3 for _, rows in panels]
    figure = Figure(figsize=(6, 0.22 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    for axis, (panel, rows) in zip(axes, panels, strict=True):
        for column, title in enumerate(panel.columns):
            shift = 0.5 * (column + 0.5) / len(panel.columns) - 0.25
            found = [(y + shift, row[1][column]) for y, row in enumerate(rows) if row[1][column]]
            middles = [middle for _, (_, middle, _) in found]
            axis.errorbar(
                middles,
                [y for y, _ in found],
                xerr=[
                    [middle - low for _, (low, middle, _) in found],
                    [high - middle for _, (_, middle, high) in found],
                ],
                fmt="o",
                markersize=4,
                label=title,
            )
        if panel.zero:
            axis.axvline(0, color="gray", linewidth=0.8)
        axis.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=9)
        title = panel.title or panel.heading + (f": {panel.only}" if panel.only else "")
        axis.set(xscale=panel.scale, ylim=(len(rows) - 0.4, -0.6))
        axis.set_title(title, fontsize=10, loc="right")  # It may be wider than the axis.
        axis.tick_params(axis="x", labelsize=9)
        axis.grid(alpha=0.3)
        single = len(panel.columns) == 1
        axis.set_xlabel(panel.label or (panel.columns[0] if single else ""), fontsize=9)
        if not single:
            axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    harness.save_figure(figure, path)


def main(argv=None):
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    folder = parser.parse_args(argv).out
    for page in PICTURES:
        draw(page, folder / f"{page}_results.png")


if __name__ == "__main__":
    main()
