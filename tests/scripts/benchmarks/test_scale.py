"""The benchmark of scale runs on few classes and prints its ratios; no figure is checked."""

import json
import pathlib

import pytest

from scripts.benchmarks import scale as script

FEW = {"name": "few", "classes": 60, "width": 8, "sampled": 20, "optimizer": "RowwiseSGD"}
OPTIONS = ["--batch", "4", "--steps", "1", "--turns", "1", "--threads", "1"]


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
@pytest.mark.skipif(
    not pathlib.Path("/proc/self/status").exists(), reason="memory is read off Linux's /proc"
)
@pytest.mark.slow
def test_prints_times_ratios_and_memory(tmp_path, monkeypatch):
    rows = [
        FEW | {"mined": [1, 2], "peers": ["sampled_softmax", "full_softmax"]},
        FEW | {"mined": [1], "peers": [], "evaluate": True},
        FEW | {"mined": [1], "peers": [], "optimizer": "unknown"},
        FEW | {"mined": [1], "peers": [], "classes": 1000},
    ]
    monkeypatch.setattr(script, "rows", lambda suite: rows)
    out = tmp_path / "tables.md"
    limit = ["--suite", "classes", "--max-classes", "60"]
    script.main([*OPTIONS, *limit, "--out", str(out)])
    title, _, head, _, *lines = out.read_text().splitlines()
    assert title == "### classes"
    assert len(lines) == 3  # The last row has too many classes.
    first, second, third = (dict(zip(cells(head), cells(line), strict=True)) for line in lines)
    for name in ("top_1, ms", "top_2, ms", "sampled_softmax, ms", "full_softmax, ms", "peak GB"):
        assert float(first[name]) > 0
    for name in ("top_1", "top_2"):
        # Both figures are rounded, the ratio is of those that are not.
        ratio = float(first[f"{name}, ms"]) / float(first["sampled_softmax, ms"])
        assert float(first[f"{name} ÷ sampled softmax"]) == pytest.approx(ratio, rel=0.2)
    assert float(second["evaluate, ms"]) > 0 and float(second["GB above the table"]) >= 0
    assert "unknown" in third["top_1, ms"]


def test_ratios_are_those_of_the_times():
    seconds = {"top_1": 0.002, "sampled_softmax": 0.008}
    table = script.table([FEW | {"seconds": seconds, "peak_gb": 1.26}], "classes")
    *_, line = str(table).splitlines()
    assert cells(line) == ["few", "60", "8", "20", "2.0", "8.0", "0.25", "1.3", ""]


def test_suites_are_those_of_the_papers_datasets():
    classes = [row["classes"] for row in script.rows("classes")]
    assert classes == [13_330, 325_056, 670_091, 2_812_281]
    for suite in ("classes", "samples", "memory", "evaluation"):
        for row in script.rows(suite):
            assert row["sampled"] < row["classes"]
            assert json.loads(json.dumps(row)) == row
