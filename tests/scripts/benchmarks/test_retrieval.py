"""The benchmark of retrieval runs on little and prints its ratios; no figure is checked."""

import pathlib

import pytest

from scripts.benchmarks import retrieval as script


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
@pytest.mark.skipif(
    not pathlib.Path("/proc/self/status").exists(), reason="memory is read off Linux's /proc"
)
def test_prints_times_and_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "STEPS", {"16 highest": script.STEPS["16 highest"]})
    out = tmp_path / "tables.md"
    sizes = ["--batch", "32", "--width", "4", "--queries", "3", "--candidates", "500", "--k", "7"]
    options = ["--layers", "1", "--seconds", "0.01", "--out", str(out)]
    suites = [suite for suite in script.SUITES if suite != "catalogue"]
    script.main([*sizes, *options, "--suite", *suites])
    step, pieces, search = (part.splitlines() for part in out.read_text().split("###")[1:])
    for lines, case, name in (
        (step, "16 highest, graph", script.OURS),
        (pieces, "pieces, graph", script.PIECES),
        (search, "top-k, graph", script.OURS),
    ):
        head, row = (cells(line) for line in (lines[2], lines[4]))
        figures = dict(zip(head, row, strict=True))
        assert figures["case"] == case and float(figures[f"{name}, ms"]) > 0
    assert float(figures["product alone, ms"]) > 0 and figures["time ÷ product alone"]


def test_evaluations_run():
    for make in script.evaluations(queries=3, width=4, layers=1, catalogue=50).values():
        make()()


def test_ratios_are_those_of_the_figures():
    times = {script.OURS: 0.002, script.PRODUCT: 0.004}
    memory = {script.OURS: 3.0, script.PRODUCT: 60.0}
    *_, head, _, row = str(script.table([("top-k", times, memory)], "search")).splitlines()
    figures = dict(zip(cells(head), cells(row), strict=True))
    assert figures["time ÷ product alone"] == "0.500"
    assert figures["memory ÷ product alone"] == "0.050"
    row = str(script.table([("step", {"error": "out of memory"}, {})], "steps")).splitlines()[-1]
    assert cells(row)[:2] == ["step", "out of memory"]
