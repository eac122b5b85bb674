"""Two workers print what one process prints."""

import os
import pathlib
import subprocess
import sys

import pytest

from examples import multi_worker as example

SHORT = ["--classes=50", "--num-sampled=10", "--examples=256", "--batch-size=64", "--epochs=2"]


def run(*options):
    """Runs the program with two workers."""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(example.__file__).parents[1])}
    command = [sys.executable, example.__file__, "--workers=2", *SHORT, *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.keras2
def test_two_workers_end_as_one_process(tmp_path):
    options = "--in-shards", f"--save={tmp_path / 'model.keras'}"
    expected = example.main([*SHORT, options[0]])
    done = run(*options)
    assert done.returncode == 0, done.stderr
    printed = dict(line.split(": ") for line in done.stdout.splitlines() if line.count(":") == 1)
    assert {name: float(printed[name]) for name in expected} == pytest.approx(expected, abs=2e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]


def test_a_worker_that_fails_ends_the_program():
    done = run("--classes=0")
    assert done.returncode == 1
    assert "A worker has failed." in done.stderr
    assert "`num_classes` must be a positive integer" in done.stderr
