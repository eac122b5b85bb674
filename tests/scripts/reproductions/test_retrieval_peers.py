"""The comparison of libraries: what they are given, and the whole of it in short."""

import numpy as np
import pytest

from scripts.reproductions import retrieval_peers as script
from scripts.reproductions import retrieval_task
from tests.scripts.reproductions import movielens_files


def test_shares_are_those_of_what_training_finds(tmp_path):
    task = retrieval_task.Task(*retrieval_task.read(movielens_files.write(tmp_path / "tiny.zip")))
    found = np.concatenate([user[1:-2] for user in task.users])
    share, counts = script.share_by_number(task), script.counts_by_id(task)
    for row, film in enumerate(task.films.ids):
        count = np.sum(found == row)
        assert share[row] == max(count, 1) / len(found)
        assert film >= len(counts) or counts[film] == count


@pytest.mark.slow
def test_runs_in_short(tmp_path, monkeypatch):
    pytest.importorskip("keras_rs")
    kept = {name: make for name, make in script.MODELS.items() if not name.startswith("Tensor")}
    monkeypatch.setattr(script, "MODELS", kept)
    monkeypatch.setattr(script, "TEMPERATURES", (0.2,))
    path = movielens_files.write(tmp_path / "tiny.zip")
    options = "--epochs 1 --seeds 0 --width 4 --batch-size 24".split()
    script.main(["--zip", str(path), "--out", str(tmp_path), *options])
    lines = (tmp_path / "results.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in kept]
