"""The short form of scripts/robustness/fault_drill.py."""

import json
import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "scripts.robustness.fault_drill"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["SoftmaxLoss, resume", "ExtremeClassifier, resume", "train_sorter"]
)
def test_ends_as_without_faults(name, tmp_path):
    """In a process of its own: one in which TensorFlow has run cannot be forked."""
    arguments = ["--kills=5", "--damages=2", f"--only={name}", f"--out={tmp_path}"]
    subprocess.run([*COMMAND, *arguments], check=True, capture_output=True)
    (path,) = tmp_path.glob("*.json")
    found = json.loads(path.read_text())
    killed, full = found["killed"], found["full disk"]
    assert killed["kills"] == 5 and killed["same"] == killed["chains"]
    assert full["same"] == 2
    for kind in ("cut", "flipped"):
        of = found["damaged"][kind]
        assert of.get("same", 0) + of.get("error", 0) == 2 and not of.get("hung")
    assert (
        f"| {json.loads(path.read_text())['killed']['kills']} |"
        in (tmp_path / "table.md").read_text()
    )


@pytest.mark.slow
def test_two_workers(tmp_path):
    arguments = ["--kills=5", "--damages=0", "--only=two workers", f"--out={tmp_path}"]
    environment = os.environ | {"TF_USE_LEGACY_KERAS": "1"}
    subprocess.run([*COMMAND, *arguments], check=True, capture_output=True, env=environment)
    (path,) = tmp_path.glob("*.json")
    killed = json.loads(path.read_text())["killed"]
    assert killed["kills"] == 1 and killed["same"] == 1
