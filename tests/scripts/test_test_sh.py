"""What scripts/test.sh makes of the exit status of pytest, for which a shell script stands."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "test.sh"


def start(folder, python):
    """The script with a body for its `python`, a shell script."""
    shutil.copy(SCRIPT, folder)
    (folder / "setup_env.sh").write_text("")
    for name, body in (("ruff", "exit 0"), ("mypy", "exit 0"), ("python", python)):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return subprocess.Popen(
        ["bash", folder / "test.sh"],
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    ("python", "status", "message"),
    [
        ("exit 0", 0, "All checks passed."),
        ("exit 5", 1, "Failed: no test was chosen"),
        ("exit $((5 * TF_USE_LEGACY_KERAS))", 0, "All checks passed."),
        ("exit $TF_USE_LEGACY_KERAS", 1, "Failed: Keras 2: tests"),
    ],
)
def test_status(python, status, message, tmp_path):
    process = start(tmp_path, python)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == status
    assert message in output.splitlines()


def test_all_processes_end_with_it(tmp_path):
    process = start(tmp_path, "echo $$ > $0.$TF_USE_LEGACY_KERAS; exec sleep 60")
    front, behind = (tmp_path / f"python.{keras_2}" for keras_2 in (0, 1))
    wait_until(lambda: all(path.exists() and path.read_text() for path in (front, behind)))
    command = pathlib.Path(f"/proc/{int(behind.read_text())}/cmdline")
    process.terminate()
    os.kill(int(front.read_text()), signal.SIGKILL)  # Bash waits for it with the signal.
    process.communicate(timeout=60)
    wait_until(lambda: not command.exists() or not command.read_text())


def wait_until(condition):
    for _ in range(300):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("it did not come to pass in 30 s")
