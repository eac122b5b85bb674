"""Gives damaged files and wrong labels to every function that reads them.

    python -m scripts.robustness.fuzz --cases 10000 --out out/fuzz

A case is a file, or labels, with random faults. A file is cut, has bits flipped, bytes added or
removed, lines doubled, dropped or swapped, or numbers that are huge, negative or text. Labels have
other types, shapes and ranks. The reader must return the right result, or raise an error whose
message names the file or the argument. The right result comes from a reader that shares no code
with the package (for files with checksums, from the undamaged file). Anything else is a defect:
another result, an error without a name, a crash of the process, or a case that takes more than
`LIMIT` seconds.

--seed decides the cases. Each target runs in a process of its own; if a case ends the process, a
new one continues with the next case. The folder gets `<target>.json`, with the defects and the
numbers of their cases. With the same --seed, the script continues after the last case in that file.
table.md has all targets with such a file.
"""

import collections
import faulthandler
import json
import math
import mmap
import os
import pathlib
import struct
import sys
import tempfile
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from rank4class_tf import _files
from scripts import command_line, tables
from scripts.robustness.fuzzing import binaries, labels, texts
from scripts.robustness.fuzzing.faults import Defect, Draws

LIMIT = 60

TARGETS = (
    texts.extreme_classification,
    texts.read_extreme_header,
    texts.read_extreme_split,
    texts.mind,
    texts.from_pairs,
    binaries.elwc_files,
    binaries.elwc_messages,
    binaries.pretrained,
    binaries.exported_classes,
    labels.losses_eager,
    labels.losses_graph,
    labels.metrics_eager,
    labels.metrics_graph,
)


def run(target, seed, start, stop, report):
    """Runs cases of a target; `report` gets the number and the outcome of each."""
    with tempfile.TemporaryDirectory() as folder:
        for case in range(start, stop):
            rng = np.random.default_rng([seed, zlib.crc32(target.__name__.encode()), case])
            draws = Draws(lambda n, rng=rng: int(rng.integers(n)))
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            try:
                found = target(draws, pathlib.Path(folder))
            except Defect as defect:
                found = f"DEFECT {defect}"
            except Exception as error:
                found = f"DEFECT {error!r}"
            faulthandler.cancel_dump_traceback_later()
            report(case, found)


def cases_of(target, count):
    """How many calls of a target make this number of cases."""
    return math.ceil(count / binaries.MESSAGES) if target is binaries.elwc_messages else count


def kept(path, seed):
    """The outcomes that a file has for the cases of a seed."""
    results = json.loads(path.read_text())
    if (other := results.get("seed")) != seed:
        raise SystemExit(f"{path} has cases of --seed {other}, not {seed}: name another --out")
    return results


def in_processes(target, seed, cases, path):
    """Runs a target in its own processes, and keeps the outcomes in a file."""
    results = {"seed": seed, "done": 0, "outcomes": {}, "defects": {}}
    if path.exists():
        results = kept(path, seed)
    memory = mmap.mmap(-1, 8)
    while results["done"] < cases:
        memory[:] = struct.pack("<q", results["done"])
        sys.stdout.flush()
        if not (pid := os.fork()):
            code = 1
            try:
                _run_all(target, seed, cases, results, memory, path)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        if path.exists():
            results = json.loads(path.read_text())
        if status:
            # The outcomes lack the cases after the last write.
            (case,) = struct.unpack("<q", memory[:])
            code = os.waitstatus_to_exitcode(status)
            results["defects"][str(case)] = f"DEFECT the process ended: {code}"
            results["outcomes"]["defect"] = results["outcomes"].get("defect", 0) + 1
            results["done"] = case + 1
            _files.write_text(path, json.dumps(results, indent=1))
    return results


def _run_all(target, seed, cases, results, memory, path):
    """Runs the remaining cases; writes outcomes after each defect and each thousandth case."""
    counts = collections.Counter(results["outcomes"])

    def report(case, found):
        if isinstance(found, str) and found.startswith("DEFECT"):
            results["defects"][str(case)] = found[:600]
            found = "defect"
        counts.update([found] if isinstance(found, str) else found)
        memory[:] = struct.pack("<q", case + 1)
        if found == "defect" or (case + 1) % 1000 == 0 or case + 1 == cases:
            results.update(done=case + 1, outcomes=dict(counts))
            _files.write_text(path, json.dumps(results, indent=1))

    run(target, seed, results["done"], cases, report)


def table(results):
    """The table, as Markdown."""
    rows = []
    for name, found in results.items():
        outcomes = dict(found["outcomes"])
        skipped = outcomes.pop("not made", 0)
        right, defects = outcomes.pop("right", 0), outcomes.pop("defect", 0)
        errors = ", ".join(f"{n} {kind}" for kind, n in sorted(outcomes.items()))
        cases = f"{sum(found['outcomes'].values()) - skipped:,}"
        rows.append([name, cases, f"{right:,}", errors, str(defects)])
    return "\n".join(tables.table(["read by", "cases", "right", "errors", "defects"], rows))


def main(argv=None):
    """Runs all targets, or only the named ones."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument(
        "--cases", type=command_line.positive(int), default=10_000, help="inputs per target"
    )
    parser.add_argument("--only", default="", help="run only targets whose names contain this")
    parser.add_argument("--seed", type=command_line.seed, default=0)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args(argv)
    names = [target.__name__ for target in TARGETS]
    if not any(args.only in name for name in names):
        parser.error(
            f"--only must be part of one of the names {', '.join(names)}, not {args.only!r}"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for target in TARGETS:
        path = args.out / f"{target.__name__}.json"
        if args.only in target.__name__:
            found = in_processes(target, args.seed, cases_of(target, args.cases), path)
        elif path.exists():
            found = kept(path, args.seed)
        else:
            continue
        name = target.__doc__.splitlines()[0].removesuffix(".")
        results[name] = found
        print(f"{name}: {found['outcomes']}", flush=True)
    text = table(results)
    _files.write_text(args.out / "table.md", text + "\n")
    print(text)
    return results


if __name__ == "__main__":
    main()
