"""Makes the tables and pictures of `noisy_labels` from the files of its runs.

    python -m scripts.reproductions.noisy_labels_report --out out/noisy

writes noisy_labels.md, noisy_labels.json and the pictures noisy_labels_DATASET.png there.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
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
# The methods in the picture.
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
# Differences with a p-value below this count.
SIGNIFICANT = 0.05

# This level stands for the mean over all levels.
MEAN = 100

# (kind, level) -> method -> what `Study.result` returns.
Results = dict[tuple[str, int], dict[str, Any]]


def read(folder: pathlib.Path, methods: Iterable[str] = METHODS) -> Results:
    """The runs of some methods in a folder of a dataset."""
    results: Results = {}
    known = {name.replace(" ", "_"): name for name in methods}
    for path in sorted(folder.glob("*.json")):
        kind, level, name = path.stem.split("_", 2)
        if kind in TITLES and name in known:
            run = json.loads(path.read_text())
            results.setdefault((kind, int(level)), {})[known[name]] = run
    order = ["none", *KINDS]
    return dict(sorted(results.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def values(run: dict[str, Any], measure: str = "accuracy") -> np.ndarray:
    """The values of a measure, one for each seed."""
    return np.array([of_seed.get(measure, np.nan) for of_seed in run["seeds"]])


def with_means(results: Results) -> Results:
    """Adds the mean over the levels of each kind of noise, as level 100."""
    found = dict(results)
    for kind in dict.fromkeys(kind for kind, level in results if level):
        levels = [runs for (of, _), runs in results.items() if of == kind]
        if len(levels) == 1:
            continue
        names = set(levels[0]).intersection(*levels)
        found[kind, MEAN] = {
            name: {
                "seeds": [
                    {"accuracy": value}
                    for value in np.mean([values(runs[name]) for runs in levels], axis=0)
                ]
            }
            for name in names
        }
    return found


def comparisons(runs: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """The difference of each method to the baseline in accuracy, and Holm's p of a paired t-test.

    Args:
        runs: runs with the same wrong labels, which are one family of tests.
    """
    found = {}
    for name, run in runs.items():
        if name != BASELINE and BASELINE in runs:
            differences = values(run) - values(runs[BASELINE])
            p = float(stats.ttest_1samp(differences, 0).pvalue) if differences.any() else 1.0
            found[name] = float(differences.mean()), p
    corrected, highest = {}, 0.0
    for rank, name in enumerate(sorted(found, key=lambda name: found[name][1])):
        highest = max(highest, min(1.0, found[name][1] * (len(found) - rank)))
        corrected[name] = found[name][0], highest
    return corrected


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}".lstrip("0")


def _table(title: str, columns: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join([title, *columns])} |", "|---|" + "---:|" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def by_level(results: Results, kind: str) -> str:
    """Accuracy at each level of a kind of noise; * marks a difference from the baseline."""
    keys = [key for key in with_means(results) if key[0] in ("none", kind)]
    families = [with_means(results)[key] for key in keys]
    compared = [comparisons(runs) for runs in families]
    rows = []
    for name in METHODS:
        if any(name in runs for runs in families):
            cells = [
                _number(values(runs[name]).mean())
                + "*" * (of_family.get(name, (0, 1))[1] < SIGNIFICANT)
                if name in runs
                else ""
                for runs, of_family in zip(families, compared, strict=True)
            ]
            rows.append([name, *cells])
    titles = ["mean" if level == MEAN else f"{level} %" for _, level in keys]
    return _table(TITLES[kind], titles, rows)


def by_measure(results: Results, kind: str, level: int) -> str:
    """All measures at one level, with the difference to the baseline and its p."""
    runs = results[kind, level]
    compared = comparisons(runs)
    rows = []
    for name in METHODS:
        if name in runs:
            tested = ["", ""]
            if name in compared:
                tested = [f"{compared[name][0]:+.3f}", f"{compared[name][1]:.4f}"]
            means = [_number(float(values(runs[name], m).mean())) for m in MEASURES]
            rows.append([name, *means, *tested])
    return _table(f"{TITLES[kind]}, {level} %", [*MEASURES.values(), "over smoothing", "p"], rows)


def draw(results: Results, path: pathlib.Path) -> None:
    """Accuracy against the share of wrong labels, with 95 % intervals of the mean."""
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
    _save(figure, path)


def _save(figure, path):
    with _files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=100, format="png")


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
            for (kind, level), runs in with_means(results).items()
            for name, (d, p) in comparisons(runs).items()
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
