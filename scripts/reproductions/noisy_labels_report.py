"""The tables and the picture of `noisy_labels`, from the files of its runs.

    python -m scripts.reproductions.noisy_labels_report --out out/noisy

writes noisy_labels.md, noisy_labels.json and noisy_labels_DATASET.png there.
"""

import argparse
import json
import pathlib
import sys
from typing import Any

import numpy as np
from scipy import stats

from rank4class_tf import _files
from scripts.reproductions.noisy_labels import BASELINE, KINDS, METHODS

TITLES = {
    "none": "right labels",
    "nearest": "the nearest class",
    "three": "one of the three nearest classes",
    "symmetric": "any other class",
    "next": "the next class",
    "lookalike": "the digit that looks most alike",
}
# What the picture shows.
DRAWN = ("softmax", BASELINE, "generalised cross-entropy", "Rankmax", "ApproxNDCG", "forward, true")
MEASURES = {
    "accuracy": "Top-1",
    "ndcg@5": "NDCG@5",
    "macro": "macro Top-1",
    "ece_calibrated": "ECE, calibrated",
    "ece_own": "ECE of its own",
    "last_accuracy": "Top-1, last epoch",
    "memorised_best": "memorised",
    "memorised_last": "memorised, last epoch",
}
# Differences less likely than this without a cause count.
SIGNIFICANT = 0.05

# (kind, level) -> method -> what `Study.result` returns.
Results = dict[tuple[str, int], dict[str, Any]]


def read(folder: pathlib.Path) -> Results:
    """The runs in a folder of a dataset."""
    results: Results = {}
    known = {name.replace(" ", "_"): name for name in METHODS}
    for path in sorted(folder.glob("*.json")):
        kind, level, name = path.stem.split("_", 2)
        if kind in TITLES and name in known:
            run = json.loads(path.read_text())
            results.setdefault((kind, int(level)), {})[known[name]] = run
    order = ["none", *KINDS]
    return dict(sorted(results.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def values(run: dict[str, Any], measure: str = "accuracy") -> np.ndarray:
    """A measure with each seed."""
    return np.array([of_seed.get(measure, np.nan) for of_seed in run["seeds"]])


def comparisons(results: Results) -> dict[tuple[str, int, str], tuple[float, float]]:
    """How far each method is above the baseline in accuracy, and Holm's p of a paired t-test.

    All comparisons of a dataset count as one family.
    """
    found = {}
    for (kind, level), runs in results.items():
        for name, run in runs.items():
            if name != BASELINE and BASELINE in runs:
                differences = values(run) - values(runs[BASELINE])
                test = stats.ttest_1samp(differences, 0)
                p = 1.0 if np.isnan(test.pvalue) else float(test.pvalue)
                found[kind, level, name] = float(differences.mean()), p
    corrected, highest = {}, 0.0
    for rank, key in enumerate(sorted(found, key=lambda key: found[key][1])):
        highest = max(highest, min(1.0, found[key][1] * (len(found) - rank)))
        corrected[key] = found[key][0], highest
    return corrected


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}".lstrip("0")


def _table(title: str, columns: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join([title, *columns])} |", "|---|" + "---:|" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def by_level(results: Results, kind: str) -> str:
    """Accuracy at each level of a kind of noise; * for what differs from the baseline."""
    levels = [key for key in results if key[0] in ("none", kind)]
    compared = comparisons(results)
    rows = []
    for name in METHODS:
        cells = []
        for key in levels:
            run = results[key].get(name)
            differs = compared.get((*key, name), (0, 1))[1] < SIGNIFICANT
            cells.append("" if run is None else _number(values(run).mean()) + "*" * differs)
        if any(cells):
            rows.append([name, *cells])
    return _table(TITLES[kind], [f"{level} %" for _, level in levels], rows)


def by_measure(results: Results, kind: str, level: int) -> str:
    """All measures at one level, with the difference to the baseline and its p."""
    runs, compared = results[kind, level], comparisons(results)
    rows = []
    for name in METHODS:
        if name in runs:
            difference, p = compared.get((kind, level, name), (np.nan, np.nan))
            tested = ["", ""] if np.isnan(p) else [f"{difference:+.3f}", f"{p:.4f}"]
            means = [_number(float(values(runs[name], m).mean())) for m in MEASURES]
            rows.append([name, *means, *tested])
    return _table(f"{TITLES[kind]}, {level} %", [*MEASURES.values(), "over smoothing", "p"], rows)


def draw(results: Results, path: pathlib.Path) -> None:
    """Accuracy against the share of wrong labels, with 95 % intervals of the mean."""
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(kind for kind, _ in results if kind != "none"))
    figure = Figure(figsize=(3.4 * len(kinds), 3.6), layout="constrained")
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for kind, panel in zip(kinds, panels, strict=True):
        for index, name in enumerate(DRAWN):
            keys = [k for k in results if k[0] in ("none", kind) and name in results[k]]
            found = [values(results[key][name]) for key in keys]
            half = [
                stats.t.ppf(0.975, len(v) - 1) * stats.sem(v) if len(v) > 1 else 0 for v in found
            ]
            panel.errorbar(
                [level + 0.3 * (index - 2) for _, level in keys],
                [v.mean() for v in found],
                half,
                label=name,
                marker="o",
                markersize=3,
                capsize=2,
            )
        panel.set(title=TITLES[kind], xlabel="wrong labels in %")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("Top-1 on right labels")
    panels[0].legend(fontsize=8)
    with _files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


def write(out: pathlib.Path) -> str:
    """Writes the tables and pictures of the datasets in a folder, and returns the tables."""
    parts, kept = [], {}
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        results = read(folder)
        kinds = list(dict.fromkeys(kind for kind, _ in results if kind != "none"))
        tables = [by_level(results, kind) for kind in kinds]
        tables += [by_measure(results, *key) for key in results if key[1] in (0, 30)]
        parts += [f"## {folder.name}", *tables]
        draw(results, out / f"noisy_labels_{folder.name}.png")
        kept[folder.name] = [
            {"kind": kind, "level": level, "method": name, "over_baseline": d, "p": p}
            for (kind, level, name), (d, p) in comparisons(results).items()
        ]
    _files.write_text(out / "noisy_labels.json", json.dumps(kept, indent=1))
    _files.write_text(out / "noisy_labels.md", "\n\n".join(parts) + "\n")
    return "\n\n".join(parts)


def main(arguments: list[str] | None = None) -> None:
    """Writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    print(write(parser.parse_args(arguments).out))


if __name__ == "__main__":
    main(sys.argv[1:])
