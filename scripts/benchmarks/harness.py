"""Shared code of the benchmarks: a process per case, best times of rounds, memory, and tables.

A benchmark starts itself again for each case, with `in_process`. That process prints its results
with `answer`. The process that starts the others does not import TensorFlow.
"""

import argparse
import dataclasses
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

from scripts import command_line, tables

# Whether a mode is compiled by XLA.
MODES = {"graph": False, "xla": True}

# These settings return freed tensors to the system at once: glibc's thresholds, and no oneDNN,
# without which TensorFlow has no memory pool of its own.
RETURN_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "0",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}
# The system, or an allocator, ends a process that asks for too much memory by these signals.
SIGNALS_OF_MEMORY = (signal.SIGKILL, signal.SIGABRT)
OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "ResourceExhausted", "OOM", "allocate memory")


def in_process(module, arguments, environment=None, time_limit=None):
    """Runs a module; returns its last line of output, read as JSON, or a dict with an `error`."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | (environment or {})
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=time_limit
        )
    except subprocess.TimeoutExpired:
        return {"error": f"over {time_limit:g} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        if "ImportError" in last or "ModuleNotFoundError" in last:
            return {"error": "not installed"}
        if -done.returncode in SIGNALS_OF_MEMORY or any(w in done.stderr for w in OUT_OF_MEMORY):
            return {"error": "out of memory"}
        if done.returncode < 0:
            return {"error": f"ends by signal {-done.returncode}"}
        return {"error": f"fails: {last[:80]}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def time_and_memory(module, arguments, environment=None, time_limit=None):
    """The figures of `--child time` and `--child memory`, each in a process of its own.

    Without times, `error` has the reason; without a memory figure, its entry has the reason.
    """
    environment = environment or {}
    result = in_process(module, ["--child", "time", *arguments], environment, time_limit)
    if "error" in result:
        return result
    child = ["--child", "memory", *arguments]
    memory = in_process(module, child, environment | RETURN_MEMORY, time_limit)
    if "error" in memory:
        memory = {f"{mode}_memory": memory["error"] for mode in MODES if mode in result}
    return result | memory


def answer(measure, memory_limit):
    """Prints the result of `measure()` for `in_process`, under a memory limit in GB."""
    limit = int(memory_limit * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    print(json.dumps(measure()))


def options(args, *names):
    """The command line that passes these options of the parent to a process."""
    given = {f"--{name.replace('_', '-')}": getattr(args, name) for name in names}
    return [
        x
        for key, value in given.items()
        if value is not None
        for x in (key, *(value if isinstance(value, list) else [value]))
    ]


def compiled(function, *inputs, jit_compile):
    """A call of the compiled function that waits for its result, on a CPU."""
    import tensorflow as tf

    # This leaves out the cost of a call from Python: in a training step the function is in a graph.
    step = tf.function(function, jit_compile=jit_compile).get_concrete_function(*inputs)
    return lambda: tf.nest.flatten(step(*inputs))[0].numpy()


def best_times(calls, seconds):
    """The best time of each of `calls`, which alternate for at least three turns.

    On a single core (`taskset -c 0`) this is processor time, which excludes the time of other
    programs.
    """
    clock = time.process_time if len(os.sched_getaffinity(0)) == 1 else time.perf_counter
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


def by_mode(make, args, names):
    """Times, or memory, of calls in graphs and under XLA, by mode.

    Args:
        make: a function of whether XLA compiles. It returns functions that make the calls, or None
            in place of a call. The first call is measured, and the others alternate with it.
        args: `child` is "time" or "memory", `seconds` the time for the turns.
        names: suffixes of the mode, for the time of each call.
    """
    import tensorflow as tf

    result = {}
    for mode, jit_compile in MODES.items():
        key = f"{mode}_memory" if args.child == "memory" else mode
        try:
            makers = make(jit_compile)
            if makers is None:
                continue
            if args.child == "memory":
                result[key] = memory_of(makers[0]())
            else:
                times = best_times([make_call() for make_call in makers], args.seconds)
                result |= {f"{mode}{name}": x for name, x in zip(names, times, strict=False)}
        except (MemoryError, tf.errors.ResourceExhaustedError):
            result[key] = "out of memory"
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, ValueError) as error:
            result[key] = "fails"
            print(f"{mode}: {error}", file=sys.stderr)
    return result


def number(value, factor=1.0, digits=1):
    """A figure as text, or a mark if there is none."""
    return f"{factor * value:.{digits}f}" if isinstance(value, float) else value or ""


def quotient(above, below, digits=2):
    """The ratio of two figures as text; "" if one is not a number."""
    both = isinstance(above, float) and isinstance(below, float)
    return f"{above / below:.{digits}f}" if both else ""


def memory_of(call):
    """Growth of the resident set in the second call, in MB; None where Linux's /proc is missing."""
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


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; its text is Markdown.

    Attributes:
        head: the titles of the columns.
        rows: the cells, as text.
        title: the heading above the table.
        numbers_to_the_right: how many columns at the end are set to the right.
    """

    head: list
    rows: list
    title: str
    numbers_to_the_right: int = 0

    def __str__(self):
        """The Markdown."""
        lines = tables.table(self.head, self.rows, self.numbers_to_the_right)
        return "\n".join([f"### {self.title}", "", *lines]) + "\n"


def show(all_tables, args):
    """Prints each table when it is measured, and writes all tables so far to the files.

    Args:
        all_tables: an iterable of `Table`.
        args: the arguments of a `parser`: `out` and `json` are the files; None writes no file.
    """
    shown = []
    figures = {"command": args.command, "machine": machine(), "tables": []}
    for one in all_tables:
        shown.append(one)
        figures["tables"].append(dataclasses.asdict(one))
        print(one, flush=True)
        if args.out or args.json:
            from rank4class_tf import _files  # It imports TensorFlow, which children do not need.
        if args.out:
            _files.write_text(args.out, "\n".join(map(str, shown)))
        if args.json:
            _files.write_text(args.json, json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


# A file of figures has the versions of these packages, where they are installed.
PACKAGES = (
    *("tensorflow", "keras", "tf_keras", "numpy", "tensorflow-ranking", "keras-rs"),
    *("scikit-learn", "torch", "entmax", "torchsort", "diffsort"),
)


def machine():
    """What figures depend on: the processor, the number of cores that may be used, versions."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load before": round(os.getloadavg()[0], 1),
        "versions": versions,
    }


def _processor():
    """The name of the processor."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


class _Parser(argparse.ArgumentParser):
    """Keeps the command without its output files as `command`; makes the folders of these files."""

    def parse_args(self, args=None, namespace=None):
        result = super().parse_args(args, namespace)
        for option, path in (("--out", result.out), ("--json", result.json)):
            if path:
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    self.error(f"{option} must be a file in a folder that can be created: {error}")
        given = iter(map(str, sys.argv[1:] if args is None else args))
        kept = []
        for word in given:
            if word in ("--out", "--json"):
                next(given)
            elif not word.startswith(("--out=", "--json=")):
                kept.append(word)
        result.command = f"{self.prog} {shlex.join(kept)}"
        return result


def parser(module, description):
    """The command line of a benchmark, with files for the tables."""
    result = _Parser(
        prog=f"python -m {module.name}",
        description=description,
        formatter_class=command_line.Formatter,
    )
    result.add_argument("--out", type=pathlib.Path, help="a Markdown file for the tables")
    result.add_argument("--json", type=pathlib.Path, help="a JSON file for the tables")
    return result


def add_cases(parser, option, kind, cases, measures, time_limit=120.0, memory_limit=8.0):
    """Adds options of a benchmark whose cases have names and run in separate processes."""
    parser.add_argument(option, nargs="+", choices=sorted(cases), default=list(cases))
    parser.add_argument("--seconds", type=float, default=2.0, help=f"seconds per {kind} and mode")
    parser.add_argument(
        "--time-limit", type=float, default=time_limit, help="time limit per process in seconds"
    )
    parser.add_argument(
        "--memory-limit", type=float, default=memory_limit, help="memory limit per process in GB"
    )
    parser.add_argument("--child", choices=measures, help=argparse.SUPPRESS)


def shape_of(dimensions):
    """A type for options of this many numbers: `"64x1000"` -> `(64, 1000)`."""

    def shape(text):
        numbers = text.lower().split("x")
        if len(numbers) != dimensions or not all(n.isdecimal() and int(n) for n in numbers):
            raise argparse.ArgumentTypeError(
                f"must be {dimensions} integers > 0 with an x between, not {text!r}"
            )
        return tuple(map(int, numbers))

    return shape


def shape_text(shape):
    """`(64, 1000)` -> `"64x1000"`."""
    return "x".join(map(str, shape))
