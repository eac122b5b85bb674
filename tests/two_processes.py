"""Runs a program in two processes that train together."""

import json
import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run(folder, *arguments):
    """Runs Python with the arguments as each of two workers; raises if one fails."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
    addresses = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    processes = []
    for index in range(2):
        config = {
            "cluster": {"worker": addresses},
            "task": {"type": "worker", "index": index},
        }
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_CONFIG": json.dumps(config),
            # They wait for each other within operations.
            "TF_NUM_INTEROP_THREADS": "4",
        }
        command = [sys.executable, *arguments]
        with (folder / f"log{index}").open("w") as log:
            processes.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            )
    try:
        for index, process in enumerate(processes):
            assert process.wait(timeout=600) == 0, (folder / f"log{index}").read_text()[
                -3000:
            ]
    finally:
        for process in processes:
            process.kill()
            process.wait()
