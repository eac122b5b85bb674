"""Shared code of benchmarks: a process per case, best times of rounds, memory, tables.

A benchmark starts itself again for each case, with `in_process`. That process prints
what the benchmark's `measure` returns. The process that starts the others need not
import TensorFlow.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import resource
import shlex
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from scripts import command_line, tables

Table = tables.Table

# Whether a mode is compiled by XLA.
MODES = {"graph": False, "xla": True}

# These settings return freed tensors to the system at once: glibc's thresholds, and no
# oneDNN, without which TensorFlow has no memory pool of its own.
RETURN_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "0",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}
# The system, or an allocator, ends a process that asks for too much memory by these
# signals.
SIGNALS_OF_MEMORY = (signal.SIGKILL, signal.SIGABRT)
OUT_OF_MEMORY = (
    "MemoryError",
    "bad_alloc",
    "ResourceExhausted",
    "OOM",
    "allocate memory",
)


def in_process(module, settings, environment=None, time_limit=None):
    """A module's `measure(**settings)` in its own process, or a dict with `error`."""
    command = [sys.executable, "-m", module, "--child", json.dumps(settings)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | (environment or {})
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=time_limit
        )
    except subprocess.TimeoutExpired:
        return {"error": f"over {time_limit:g} s"}
    if done.returncode:
        return {"error": reason(done)}
    return json.loads(done.stdout.strip().splitlines()[-1])


def reason(done):
    """Why a process has failed, in a few words."""
    signal_number = -done.returncode
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if "ImportError" in last or "ModuleNotFoundError" in last:
        return "not installed"
    if signal_number in SIGNALS_OF_MEMORY:
        return "out of memory"
    if any(words in done.stderr for words in OUT_OF_MEMORY):
        return "out of memory"
    if signal_number > 0:
        return f"ends by signal {signal_number}"
    return f"fails: {last[:80]}"


def answer(measure, settings):
    """Prints `measure(**settings)` for `in_process`; the `memory_limit` is in GB."""
    limit = int(settings.pop("memory_limit") * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    print(json.dumps(measure(**settings)))


def run(module, args, environment=None, **settings):
    """`in_process` with the seconds and the limits of the command line."""
    settings |= {"seconds": args.seconds, "memory_limit": args.memory_limit}
    return in_process(module, settings, environment, args.time_limit)


# The name of a case among what its times are compared with.
CASE = "case"


class Figures(NamedTuple):
    """What was measured of a case; a text says why a figure is missing.

    Attributes:
        times: by mode, the seconds of the case, by the name `CASE`, and of others.
        memory: by mode, MB of the case.
    """

    times: dict[str, dict[str, float] | str]
    memory: dict[str, float | str | None]

    def seconds(self, mode, name=CASE):
        """The best time of a mode, or why there is none."""
        times = self.times.get(mode, "")
        return times if isinstance(times, str) else times.get(name, "")

    def over(self, name):
        """The time over that of `name`, a text for each mode."""
        return [quotient(self.seconds(m), self.seconds(m, name)) for m in MODES]

    def megabytes(self):
        """The memory, a text for each mode."""
        return [number(self.memory.get(mode), digits=0) for mode in MODES]


def time_and_memory(module, args, environment=None, **settings):
    """The `Figures` of a case; its time and its memory have a process each."""
    environment = environment or {}
    times = run(module, args, environment, what="time", **settings)
    if "error" in times:
        return Figures(dict.fromkeys(MODES, times["error"]), {})
    memory = run(module, args, environment | RETURN_MEMORY, what="memory", **settings)
    if "error" in memory:
        memory = dict.fromkeys(times, memory["error"])
    return Figures(times, memory)


def compiled(function, *inputs, jit_compile):
    """A call of the compiled function that waits for its result, on a CPU."""
    import tensorflow as tf

    # This leaves out the cost of a call from Python: in a training step the function is
    # in a graph.
    step = tf.function(function, jit_compile=jit_compile).get_concrete_function(*inputs)
    return lambda: tf.nest.flatten(step(*inputs))[0].numpy()


def best_times(calls, seconds):
    """The best time of each of `calls`, which alternate for at least three turns.

    On a single core (`taskset -c 0`) this is processor time, which excludes the time of
    other programs.
    """
    clock = (
        time.process_time if len(os.sched_getaffinity(0)) == 1 else time.perf_counter
    )
    for call in calls:
        call()
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    turns = 0
    while turns < 3 or time.perf_counter() < end:
        for index, call in enumerate(calls):
            start = clock()
            call()
            best[index] = min(best[index], clock() - start)
        turns += 1
    return best


def by_mode(make, what, seconds):
    """Seconds by mode and name, or MB by mode of the first; a text if that fails.

    `make` is a function of whether XLA compiles. It returns, by name, functions that
    make the calls, which alternate.
    """
    import tensorflow as tf

    result = {}
    for mode, jit_compile in MODES.items():
        try:
            makers = make(jit_compile)
            if what == "memory":
                first, *_ = makers.values()
                result[mode] = memory_of(first())
            else:
                calls = [make_call() for make_call in makers.values()]
                times = best_times(calls, seconds)
                result[mode] = dict(zip(makers, times, strict=True))
        except (MemoryError, tf.errors.ResourceExhaustedError):
            result[mode] = "out of memory"
        except (
            tf.errors.InvalidArgumentError,
            tf.errors.UnimplementedError,
            ValueError,
        ) as error:
            result[mode] = "fails"
            print(f"{mode}: {error}", file=sys.stderr)
    return result


def number(value, factor=1.0, digits=1):
    """A figure as text, or a mark if there is none."""
    return f"{factor * value:.{digits}f}" if isinstance(value, float) else value or ""


def quotient(above, below, digits=2):
    """The ratio of two figures as text; "" if there is none."""
    both = isinstance(above, float) and isinstance(below, float)
    return f"{above / below:.{digits}f}" if both and below else ""


def memory_of(call):
    """Resident set growth in the second call, in MB; None without Linux's /proc."""
    call()
    try:
        before = reset_peak()
    except OSError:
        return None
    call()
    return (memory_status("VmHWM") - before) / 1e6


def reset_peak():
    """The resident set in bytes, from which VmHWM counts from now on."""
    before = memory_status("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # Resets VmHWM.
    return before


def memory_status(key):
    """A figure of /proc/self/status in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")


# The versions of these packages are printed, where they are installed.
PACKAGES = [
    "tensorflow",
    "keras",
    "tf_keras",
    "numpy",
    "tensorflow-ranking",
    "keras-rs",
    "scikit-learn",
    "torch",
    "entmax",
    "torchsort",
    "diffsort",
]


def machine():
    """What figures depend on: the processor, number of usable cores, versions."""
    versions = [f"python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0))
    load = f"load {os.getloadavg()[0]:.1f} before it began"
    return f"{cores} × {processor()}, {load}; {', '.join(versions)}."


def processor():
    """The name of the processor, by Linux, or of its kind."""
    path = pathlib.Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def parser(module, description, quick, seconds=2.0, time_limit=120.0, memory_limit=8.0):
    """The command line of a benchmark; the last three are defaults of its options."""
    result = command_line.Parser(module, description, quick)
    add = result.add_value
    add("--csv", pathlib.Path, None, "a file for the tables")
    if seconds is not None:
        add("--seconds", float, seconds, "seconds per case and mode")
    add("--time-limit", float, time_limit, "seconds per process")
    add("--memory-limit", float, memory_limit, "GB per process")
    add("--child", json.loads, None, argparse.SUPPRESS)
    return result


def main(parser, measure, measured, argv=None):
    """Measures one case if `in_process` started this process; else shows all tables.

    `measure` is a function of the settings of a case, `measured` one from arguments to
    tables.
    """
    given = list(map(str, sys.argv[1:] if argv is None else argv))
    args = parser.parse_args(given)
    if args.child is not None:
        answer(measure, args.child)
        return
    about = f"{parser.prog} {shlex.join(given)}".strip(), machine()
    print("`{}`\n\n{}\n".format(*about), flush=True)
    tables.show_all(measured(args), args.csv, about)


def add_shapes(parser, names, default):
    """Adds `--shapes`; with two names, `64x1000` is the shape `(64, 1000)`."""

    def shape(text):
        numbers = text.lower().split("x")
        positive = all(n.isdecimal() and int(n) for n in numbers)
        if len(numbers) != len(default[0]) or not positive:
            raise argparse.ArgumentTypeError(
                f"must be integers > 0 as {names}, not {text!r}"
            )
        return tuple(map(int, numbers))

    parser.add_argument("--shapes", nargs="*", type=shape, default=default, help=names)
