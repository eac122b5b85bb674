"""The short form of scripts/robustness/fuzz.py, and that it finds what it looks for."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.robustness import fuzz as script
from scripts.robustness.fuzzing import binaries, faults, labels

# Those that trace graphs or read a file several times take longer.
CASES = {
    "elwc_files": 10,
    "elwc_messages": 5,
    "extreme_classification": 15,
    "losses_graph": 15,
    "metrics_graph": 15,
}


@pytest.mark.parametrize("target", script.TARGETS, ids=lambda target: target.__name__)
def test_no_defect(target, tmp_path, monkeypatch):
    monkeypatch.setattr(binaries, "MESSAGES", 4)

    @settings(
        max_examples=CASES.get(target.__name__, 40),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def cases(data):
        target(faults.Draws(lambda n: data.draw(st.integers(0, n - 1))), tmp_path)

    cases()


def draws():
    rng = np.random.default_rng(0)
    return faults.Draws(lambda n: int(rng.integers(n)))


def test_mutations_change_bytes():
    content = b"5 14 15\n0,12 3:0.5\n"
    for mutation in faults.MUTATIONS:
        found = {mutation(draws, content) for draws in [draws()] for _ in range(50)}
        assert len(found - {content}) > 3, mutation
        mutation(draws(), b"")
    assert any(faults.mutated(draws, content) == content for draws in [draws()] for _ in range(99))


@pytest.mark.parametrize(
    ("read", "expected", "message"),
    [
        (lambda: 1, lambda found: found == 2, "another result: 1"),
        (lambda: 1, None, "another result: 1"),
        (lambda: int("x"), None, "an error without a name"),
        (lambda: int("x"), lambda found: True, "what is right is refused"),
    ],
)
def test_defects_are_seen(read, expected, message):
    with pytest.raises(faults.Defect, match=message):
        faults.outcome(read, expected, ["file.txt"])


def test_an_error_that_is_not_expected_goes_through():
    with pytest.raises(ZeroDivisionError):
        faults.outcome(lambda: 1 // 0, None, [""])


def test_a_crash_is_counted_and_the_rest_goes_on(tmp_path):
    """In processes of its own, which a test may not fork: here only what they report."""
    reported = []

    def target(draws, folder):
        assert folder.exists()
        if draws.chance(2):
            raise faults.Defect("of a test")
        return "right"

    script.run(target, 0, 3, 23, lambda case, found: reported.append((case, found)))
    assert [case for case, _ in reported] == list(range(3, 23))
    assert {found for _, found in reported} == {"right", "DEFECT of a test"}


def test_a_defect_is_written_at_once(tmp_path):
    path, seen = tmp_path / "target.json", []

    def target(draws, folder):
        seen.append(json.loads(path.read_text()) if path.exists() else None)
        if len(seen) == 2:
            raise faults.Defect("of a test")
        return "right"

    results = {"seed": 0, "done": 0, "outcomes": {}, "defects": {}}
    script._run_all(target, 0, 3, results, bytearray(8), path)
    assert seen[:2] == [None, None]
    assert seen[2]["defects"] == {"1": "DEFECT of a test"} and seen[2]["done"] == 2
    assert seen[2]["outcomes"] == {"right": 1, "defect": 1}


def test_results_of_another_seed_are_refused(tmp_path):
    path = tmp_path / "target.json"
    path.write_text(json.dumps({"seed": 3, "done": 5, "outcomes": {"right": 5}, "defects": {}}))
    assert script.in_processes(None, 3, 5, path)["outcomes"] == {"right": 5}
    with pytest.raises(SystemExit, match="--seed 3, not 4"):
        script.in_processes(None, 4, 5, path)


def test_table_keeps_what_was_run_before(tmp_path, monkeypatch):
    def in_processes(target, seed, cases, path):
        results = {"seed": seed, "done": cases, "outcomes": {"right": cases}, "defects": {}}
        path.write_text(json.dumps(results))
        return results

    monkeypatch.setattr(script, "in_processes", in_processes)
    for count, only in ((7, "mind"), (8, "losses")):
        script.main(["--cases", str(count), "--only", only, "--out", str(tmp_path)])
    _, _, *rows = (tmp_path / "table.md").read_text().splitlines()
    assert [row.split(" | ")[1] for row in rows] == ["7", "8", "8"]


@pytest.mark.parametrize("flags", ["--only nosuch", "--cases 0", "--seed -1"])
def test_bad_arguments(flags, tmp_path, capsys):
    with pytest.raises(SystemExit):
        script.main([*flags.split(), "--out", str(tmp_path / "new")])
    option, value = flags.split()
    error = capsys.readouterr().err
    assert f"{option}" in error and f"not '{value}'" in error
    assert not (tmp_path / "new").exists()


def test_oracle_of_metrics_is_the_mean_over_all_orders():
    """Two positives and two others share a score below one other: ranks 2, 3 or 4."""
    found = labels._reciprocal_rank([5.0, 1, 1, 1, 1], {1: 1.0, 2: 1.0}, set())
    assert found == pytest.approx(1 / 2 * 1 / 2 + 1 / 2 * 2 / 3 / 3 + 1 / 2 * 1 / 3 / 4)


def test_table():
    results = {"a": {"done": 9, "outcomes": {"right": 2, "ValueError": 5, "defect": 1}}}
    assert script.table(results).splitlines()[-1] == "| a | 8 | 2 | 5 ValueError | 1 |"
