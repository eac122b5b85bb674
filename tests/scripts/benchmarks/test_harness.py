"""What the benchmarks share; `best_times` and memory run with them."""

import argparse
import json
import types

import pytest

from scripts.benchmarks import harness


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Writes the module `measured`, which a process that starts here finds."""
    monkeypatch.chdir(tmp_path)
    return (tmp_path / "measured.py").write_text


SPEC = types.SimpleNamespace(name="scripts.benchmarks.it")


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
    assert harness.in_process("measured", [], time_limit=limit) == expected


def test_memory_has_a_process_of_its_own(write_module):
    write_module(
        "import json, os, sys\n"
        "print(json.dumps({sys.argv[2]: os.environ.get('MALLOC_TRIM_THRESHOLD_', sys.argv[3])}))"
    )
    assert harness.time_and_memory("measured", [7]) == {"time": "7", "memory": "0"}


def test_times_stay_where_memory_fails(write_module):
    write_module(
        "import sys\nassert sys.argv[2] == 'time', 'MemoryError'\nprint('{\"graph\": 1.5}')"
    )
    expected = {"graph": 1.5, "graph_memory": "out of memory"}
    assert harness.time_and_memory("measured", []) == expected


def test_help_shows_the_defaults_there_are():
    parser = harness.parser(SPEC, "It measures.")
    parser.add_argument("--batch", type=int, default=7, help="of a step")
    help_text = parser.format_help()
    assert "of a step (default: 7)" in help_text and "None" not in help_text


def test_options_leave_out_what_is_not_given():
    args = argparse.Namespace(max_positives=None, memory_limit=8.0, seed=0)
    given = harness.options(args, "max_positives", "memory_limit", "seed")
    assert given == ["--memory-limit", 8.0, "--seed", 0]


@pytest.mark.parametrize("joined", [False, True])
def test_show_writes_what_there_is_so_far(joined, tmp_path, capsys):
    out, figures = tmp_path / "tables.md", tmp_path / "tables.json"
    parser = harness.parser(SPEC, "It measures.")
    parser.add_argument("--shape")
    files = ["--out", str(out), "--json", str(figures)]
    if joined:
        files = ["=".join(files[:2]), "=".join(files[2:])]
    args = parser.parse_args(["--shape", "2 x 8", *files])

    def tables():
        yield harness.Table(["loss", "ms"], [["a", "1"]], "first", numbers_to_the_right=1)
        assert out.read_text() == "### first\n\n| loss | ms |\n|---|---:|\n| a | 1 |\n"
        yield harness.Table(["loss"], [["b"]], "second")

    harness.show(tables(), args)
    assert out.read_text().endswith("| a | 1 |\n\n### second\n\n| loss |\n|---|\n| b |\n")
    assert capsys.readouterr().out == out.read_text() + "\n"
    written = json.loads(figures.read_text())
    assert written["command"] == "python -m scripts.benchmarks.it --shape '2 x 8'"
    assert [table["rows"] for table in written["tables"]] == [[["a", "1"]], [["b"]]]
    assert written["machine"]["cores"] >= 1 and "tensorflow" in written["machine"]["versions"]


def test_shapes():
    assert harness.shape_of(3)("2X8x4") == (2, 8, 4)
    assert harness.shape_text((2, 8, 4)) == "2x8x4"
    for text in ("2x8", "2x8xa", "2x0x8", "2x-5x8"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"3 integers > 0 .* not '{text}'"):
            harness.shape_of(3)(text)


def test_folders_of_the_files_are_made_before_anything_is_measured(tmp_path, capsys):
    parser = harness.parser(SPEC, "It measures.")
    parser.parse_args(["--out", str(tmp_path / "a" / "b" / "x.md")])
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        parser.parse_args(["--json", str(tmp_path / "file" / "x.json")])
    assert "--json must be a file in a folder that can be created" in capsys.readouterr().err
