"""The comparison of two models shows what it says."""

import csv

import pytest

from scripts.reproductions import compare_models


@pytest.mark.slow
def test_runs(tmp_path, capsys):
    compare_models.main(["--out", str(tmp_path), "--epochs", "2"])
    lines = capsys.readouterr().out.splitlines()
    rows = {cells[1].strip(): cells[2:] for cells in (line.split("|") for line in lines[:5])}
    for name in ("top_k_accuracy_at_1", "top_k_accuracy_at_5"):
        first, second, difference, p = rows[name][:4]
        assert first == second and float(difference) == 0 and float(p) == 1
    assert float(rows["ndcg_at_5"][2]) > 0
    with open(tmp_path / "first.csv", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) > 100
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")
