"""The benchmark of the heads runs, and its table follows from what was measured."""

import subprocess
import sys

import pytest

from scripts.benchmarks import heads


def test_table_shows_ratios():
    own = {"graph": 0.003, "graph_dense": 0.002, "xla": "out of memory", "graph_memory": 7.4}
    peer = {"graph": 0.03, "graph_dense": 0.002, "graph_own": 0.003, "graph_memory": "over 9 s"}
    results = {"concat": own, "plain_concat": peer, "plain_cosine": {"error": "over 9 s"}}
    assert str(heads.table((2, 8, 4), results)).splitlines()[4:] == [
        "| concat | 3.0 | out of memory | 1.50 |  | 7 |  |  |  |",
        "| plain_concat | 30.0 |  | 15.00 |  | over 9 s |  | 10.00 |  |",
        "| plain_cosine | over 9 s | over 9 s |  |  |  |  |  |  |",
    ]


@pytest.mark.parametrize("child", ["time", "memory"])
def test_what_runs_out_of_memory_says_so_in_its_place(child, monkeypatch):
    def compiled(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(heads.harness, "compiled", compiled)
    args = heads.parse_args(["--units", "3", "--child", child])
    result = heads.measure("concat", (2, 8, 4), args)
    end = {"time": "", "memory": "_memory"}[child]
    assert result == {f"graph{end}": "out of memory", f"xla{end}": "out of memory"}


@pytest.mark.parametrize("name", heads.HEADS)
def test_plain_forms_are_those_of_the_heads(name, rng):
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras

    encodings = tf.constant(rng.normal(size=(3, 6)), tf.float32)
    scores = []
    for case in (name, f"plain_{name}"):
        keras.utils.set_random_seed(1)
        score, _ = heads.CASES[case](5, 6, (4, 3))
        scores.append(score(encodings))
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_runs(tmp_path):
    out = tmp_path / "table.md"
    command = [
        sys.executable,
        "-m",
        "scripts.benchmarks.heads",
        "--heads",
        "plain_concat",
        "--shapes",
        "2x8x4",
        "--units",
        "3",
    ]
    subprocess.run([*command, "--seconds", "0", "--out", out], check=True, capture_output=True)
    cells = out.read_text().splitlines()[4].strip("| ").split(" | ")
    assert cells[0] == "plain_concat" and all(float(cell) > 0 for cell in cells[1:5])
