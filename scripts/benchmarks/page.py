"""Writes the tables of the benchmarks to their pages, docs/benchmarks.md and docs/results/speed.md.

    python -m scripts.benchmarks.losses --json docs/results/benchmarks/losses.json
    python -m scripts.benchmarks.page

The text between `<!-- figures: losses -->` and `<!-- end -->` on a page is written from
`losses.json`, the file that a benchmark writes with `--json`. The rest of the page stays.
"""

import json
import pathlib
import re

from rank4class_tf import _files
from scripts import command_line
from scripts.benchmarks.harness import Table

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGES = (DOCS / "benchmarks.md", DOCS / "results" / "speed.md")
FIGURES = DOCS / "results" / "benchmarks"
_PLACE = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def section(figures):
    """The Markdown of a file of figures: the command, the machine, the tables."""
    machine = figures["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [
        f"`{figures['command']}`",
        "",
        f"{machine['cores']} × {machine['processor']}, load {machine['load before']} before it "
        f"began; {versions}.",
    ]
    for fields in figures["tables"]:
        table = Table(**fields)
        lines += ["", f"**{table.title}**", "", *str(table).splitlines()[2:]]
    return "\n".join(["", *lines, "", ""])


def filled(text):
    """A page with the figures in their places."""

    def fill(match):
        begin, name, end = match.groups()
        return begin + section(json.loads((FIGURES / f"{name}.json").read_text())) + end

    return _PLACE.sub(fill, text)


def main(argv=None):
    """Writes the pages."""
    command_line.parser(__spec__, description=__doc__).parse_args(argv)
    for page in PAGES:
        _files.write_text(page, filled(page.read_text()))


if __name__ == "__main__":
    main()
