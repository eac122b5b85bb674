"""The benchmark of fit's first step runs, and its table follows from what was measured."""

import pytest

from scripts.benchmarks import first_step


def test_table_shows_ratios():
    times = {form: [0.5, 0.6 + i] for i, form in enumerate(first_step.FORMS)}
    cells = [first_step.cell(times, form) for form in first_step.FORMS]
    assert cells == ["1.20", "3.20", "5.20", "7.20"]
    assert first_step.cell({"error": "out of memory"}, "ids") == "out of memory"


@pytest.mark.slow
def test_it_runs(capsys):
    arguments = ["--losses", "softmax", "rankmax", "--shape", "4x20", "--turns", "1"]
    first_step.main(arguments)
    *_, softmax, rankmax = capsys.readouterr().out.strip().splitlines()
    for row, name in ((softmax, "softmax"), (rankmax, "rankmax")):
        label, *ratios = (cell.strip() for cell in row.strip("|").split("|"))
        assert label == name and all(float(ratio) > 0 for ratio in ratios)
