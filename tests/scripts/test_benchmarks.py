"""The benchmarks: how they measure and report; and, marked slow, the short form of each."""

import argparse
import csv
import subprocess
import sys
import types

import numpy as np
import pytest

from scripts.benchmarks import harness, heads, losses, many_classes, metrics, retrieval, sorters

SPEC = types.SimpleNamespace(name="scripts.benchmarks.it")
ARGS = argparse.Namespace(seconds=0.5, memory_limit=8.0, time_limit=60.0)


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Writes the module `measured`, which a process that starts here finds."""
    monkeypatch.chdir(tmp_path)
    return (tmp_path / "measured.py").write_text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('first'); print('{\"graph\": 1.5}')", {"graph": 1.5}),
        ("import no_such_module", {"error": "not installed"}),
        ("raise MemoryError", {"error": "out of memory"}),
        ("import os; os.kill(os.getpid(), 9)", {"error": "out of memory"}),
        ("import os; os.kill(os.getpid(), 15)", {"error": "ends by signal 15"}),
        ("raise ValueError('k')", {"error": "fails: ValueError: k"}),
        ("import time; time.sleep(60)", {"error": "over 0.5 s"}),
    ],
)
def test_in_process_gives_figures_or_the_reason(code, expected, write_module):
    write_module(code)
    limit = 0.5 if "sleep" in code else None
    assert harness.in_process("measured", {}, time_limit=limit) == expected


def test_memory_has_a_process_of_its_own(write_module):
    write_module(
        "import json, os, sys\nsettings = json.loads(sys.argv[2])\n"
        "assert settings['name'] == 'a' and settings['seconds'] == 0.5\n"
        "print(json.dumps({settings['what']: os.environ.get('MALLOC_TRIM_THRESHOLD_', '-')}))"
    )
    found = harness.time_and_memory("measured", ARGS, name="a")
    assert found == {"time": "-", "memory": "0"}


def test_times_stay_where_memory_fails(write_module):
    write_module(
        "import sys\nassert 'time' in sys.argv[2], 'MemoryError'\nprint('{\"graph\": 1.5}')"
    )
    expected = {"graph": 1.5, "graph_memory": "out of memory"}
    assert harness.time_and_memory("measured", ARGS) == expected


def test_csv_has_all_tables_so_far(tmp_path, capsys):
    path = tmp_path / "new" / "figures.csv"

    def measured(args):
        assert args.shapes == [(2, 8)] and args.seconds == 0.1
        yield harness.Table("first", ["loss", "ms"], [["a, b", "1"]], right=1)
        assert path.read_text().endswith('# first\nloss,ms\n"a, b",1\n')
        yield harness.Table("second", ["loss"], [["c"]])

    parser = harness.parser(SPEC, "It measures.", quick={"seconds": 0.1})
    harness.add_shapes(parser, "batch x n", [(3, 4)])
    given = ["--shapes", "2X8", "--quick", "--csv", str(path)]
    harness.main(parser, None, measured, given)
    assert path.read_text().endswith("# second\nloss\nc\n")
    assert path.read_text().startswith(f"# python -m scripts.benchmarks.it {' '.join(given)}\n# ")
    printed = capsys.readouterr().out
    assert printed.endswith(
        "**first**\n\n| loss | ms |\n|---|---:|\n| a, b | 1 |\n\n**second**\n\n"
        "| loss |\n|---|\n| c |\n\n"
    )


@pytest.mark.parametrize("text", ["2", "2x8x4", "2xa", "2x0", "2x-5"])
def test_bad_shapes(text, capsys):
    parser = harness.parser(SPEC, "It measures.", quick={})
    harness.add_shapes(parser, "batch x n", [(3, 4)])
    with pytest.raises(SystemExit):
        parser.parse_args(["--shapes", text])
    assert f"must be integers > 0 as batch x n, not '{text}'" in capsys.readouterr().err


def test_the_quick_form_yields_to_what_is_given():
    parser = harness.parser(SPEC, "It measures.", quick={"seconds": 0.1})
    assert parser.parse_args([]).seconds == 2.0
    assert parser.parse_args(["--quick", "--seconds", "3"]).seconds == 3.0


def test_losses_are_compared_with_softmax_and_peers_with_ours():
    own = {"graph": 3.0, "graph_softmax": 2.0, "xla": 1.0, "xla_softmax": 1.0, "graph_memory": 7.4}
    peer = {"graph": 90.0, "graph_softmax": 3.0, "xla": "out of memory"}
    peer["graph_memory"] = "over 9 s"
    results = {"approx_ndcg": own, "tfr_approx_ndcg": peer, "tfr_softmax": {"error": "over 9 s"}}
    assert losses.table((2, 8), results).rows == [
        ["approx_ndcg", "1.50", "1.00", "7", "", "", ""],
        ["tfr_approx_ndcg", "30.00", "out of memory", "over 9 s", "", "20.0", ""],
        ["tfr_softmax", "over 9 s", "over 9 s", "", "", "", ""],
    ]


def test_names_of_losses_elsewhere():
    names = ["approx_ndcg", "gumbel_approx_ndcg", "list_mle", "approx_mrr", "pairwise_hinge"]
    assert list(map(losses.class_name, names)) == [
        *("ApproxNDCGLoss", "GumbelApproxNDCGLoss", "ListMLELoss", "ApproxMRRLoss"),
        "PairwiseHingeLoss",
    ]


def test_heads_are_compared_with_dense_and_plain_forms_with_ours():
    own = {"graph": 0.003, "graph_dense": 0.002, "xla": "out of memory", "graph_memory": 7.4}
    peer = {"graph": 0.03, "graph_dense": 0.002, "graph_own": 0.003, "graph_memory": "over 9 s"}
    results = {"concat": own, "plain_concat": peer, "plain_latent_cross": {"error": "over 9 s"}}
    assert heads.table((2, 8, 4), results).rows == [
        ["concat", "3.0", "out of memory", "1.50", "", "7", "", "", ""],
        ["plain_concat", "30.0", "", "15.00", "", "over 9 s", "", "10.00", ""],
        ["plain_latent_cross", "over 9 s", "over 9 s", "", "", "", "", "", ""],
    ]


@pytest.mark.parametrize("what", ["time", "memory"])
def test_what_runs_out_of_memory_says_so_in_its_place(what, monkeypatch):
    def compiled(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(harness, "compiled", compiled)
    result = heads.measure(what, "concat", (2, 8, 4), [3], 0.0)
    end = {"time": "", "memory": "_memory"}[what]
    assert result == {f"graph{end}": "out of memory", f"xla{end}": "out of memory"}


@pytest.mark.parametrize("name", heads.MLPS)
def test_plain_forms_are_those_of_the_heads(name, rng):
    import tensorflow as tf
    from tensorflow import keras

    encodings = tf.constant(rng.normal(size=(3, 6)), tf.float32)
    scores = []
    for case in (name, f"plain_{name}"):
        keras.utils.set_random_seed(1)
        score, _ = heads.CASES[case](5, 6, (4, 3))
        scores.append(score(encodings))
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)


def test_metrics_are_compared_with_others_of_the_same_labels():
    times = {metrics.BASELINE: 0.002, metrics.OURS: 0.004, "plain NDCG(5)": 0.001}
    measured = [["2x8", "random", name, taken] for name, taken in times.items()]
    table = metrics.table("keras", [*measured, ["2x8", "best", "NDCG(5)", 0.1]])
    assert table.rows[1] == ["2x8", "random", "NDCG(5)", "4.00", "2.00", "1.00", "4.00"]
    assert table.rows[-1] == ["2x8", "best", "NDCG(5)", "100.00", "", "1.00", ""]


def test_sorters_are_compared_with_the_sort():
    graph = {"forward": 0.003, "gradient": 0.006, "sort": 0.002}
    results = {"laplace": {"graph": graph}, "torchsort": {"error": "not installed"}}
    assert sorters.time_table((32, 100), results).rows == [
        ["laplace", "1.5 (3 ms)", "3.0 (6 ms)", "", ""],
        ["torchsort", *["not installed"] * 4],
    ]
    figures = {"l1_10": 0.02, "vanishing_slopes": 0.01, "wrong_slopes": 0.0, "median_slope": -0.45}
    results = {"laplace": figures, "sigmoid": {"error": "over 9 s"}}
    assert sorters.accuracy_table(10, results).rows == [
        ["laplace", "0.0200", "1.0%", "0.0%", "-0.45"],
        ["sigmoid", "over 9 s", "", "", ""],
    ]


def test_searches_are_compared_with_the_product():
    times = {retrieval.OURS: 0.002, retrieval.PRODUCT: 0.004}
    memory = {retrieval.OURS: 3.0, retrieval.PRODUCT: 60.0}
    table = retrieval.table([("top-k", times, memory)], "search")
    figures = dict(zip(table.head, table.rows[0], strict=True))
    assert figures["time ÷ product alone"] == "0.500"
    assert figures["memory ÷ product alone"] == "0.050"
    table = retrieval.table([("step", {"error": "out of memory"}, {})], "steps")
    assert table.rows == [["step: out of memory"]]


def test_steps_are_compared_with_sampled_softmax(monkeypatch):
    found = {"top_1": 0.002, "sampled_softmax": 0.008, "GB": 1.26}
    monkeypatch.setattr(harness, "run", lambda *args, **settings: found)
    (table,) = many_classes.measured(
        many_classes.parser().parse_args(
            ["--suite", "step", "--classes", "60", "--models", "top_1", "sampled_softmax"]
        )
    )
    assert table.rows == [["60", "2.0", "8.0", "0.25", "1.3"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["losses", "heads", "metrics", "sorters", "retrieval", "many_classes", "fit"],
)
def test_short_form(name, tmp_path):
    path = tmp_path / "figures.csv"
    command = [sys.executable, "-m", f"scripts.benchmarks.{name}", "--quick", "--csv", path]
    subprocess.run(command, check=True, capture_output=True)
    lines = path.read_text().splitlines()
    heads = [i + 1 for i, line in enumerate(lines) if line.startswith("#") and i > 1]
    rows = [i for i, line in enumerate(lines) if line[0] != "#" and i not in heads]
    assert len(rows) >= len(heads) >= 1
    for row in csv.reader(lines[i] for i in rows):
        cells = [cell.split()[0] for cell in row[1:] if cell[:1].isdigit()]
        assert cells and not any(bad in cell for cell in row for bad in ("fails", "memory", "over"))
