"""Kills training, fills the disk and damages checkpoints; compares with an undisturbed run.

    python -m scripts.robustness.fault_drill --kills 100 --damages 6 --out out/faults
    export TF_USE_LEGACY_KERAS=1
    python -m scripts.robustness.fault_drill --kills 30 --damages 2 --out out/faults-keras-2

Each case trains a tiny model to its end in a process of its own, which resumes from what it finds
in its folder. The process is killed by SIGKILL: in one half of the cases at a random moment, in the
other half while it writes a checkpoint. It is started again, killed again up to four times, and
then left to end. Then the weights of the model and of its optimizer are compared, bit by bit, with
an undisturbed run. `--damages` is how many times a checkpoint is cut, or one of its bits is
flipped, before a run resumes from it. It is also how many times the disk is full while a checkpoint
is written; the next run has space again. Further cases train a model with classes in shards in two
processes of a MultiWorkerMirroredStrategy. One of them is killed. Then both are started again, or
only one, which has all shards; its end may differ by rounding. The table says how long the other
process went on.

A row of the table says how often the end was the same or different, how often a run stopped with an
error, and with which error. The folder gets `<case>.json` for each finished case. A case with such
a file is not run again, but appears in table.md.
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import math
import mmap
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow import keras

from examples import resume_training
from rank4class_tf import _files, layers, losses, models, optimizers
from scripts import command_line, tables
from scripts.reproductions import train_sorter

KERAS_3 = hasattr(keras, "ops")
EPOCHS, BATCH, CLASSES, WIDTH = 8, 16, 12, 6
# A run that takes longer hangs, even on a busy machine.
TIME_LIMIT = 1800
# How a run may end: like an undisturbed run, differently, or with an error.
ENDS = ("same", "other", "error")


@dataclasses.dataclass(frozen=True)
class Case:
    """A training program, and how it saves.

    Attributes:
        name: the name of the row.
        train: a function of a folder that trains to the end and returns arrays, the end state.
        saves: a class and the name of its method that writes a checkpoint.
        share: the part of `--kills` that this case gets.
        workers: how many processes train together.
        last_workers: how many processes are started the last time, if not `workers`.
    """

    name: str
    train: Callable[[pathlib.Path], list[Any]]
    saves: tuple[Any, str]
    share: float = 1.0
    workers: int = 1
    last_workers: int | None = None


class Progress:
    """Tells the process that started a run whether the run is saving, and how often it did."""

    def __init__(self):
        self._memory = mmap.mmap(-1, 16)

    def set(self, saving, count, seconds):
        """Reports a save; called in the run."""
        self._memory[:] = struct.pack("<?3xid", saving, count, seconds)

    def get(self):
        """Whether the run is saving, how many saves it began, and how long the last one took."""
        return struct.unpack("<?3xid", self._memory[:])


def data():
    """Points and their classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5 * BATCH, WIDTH)).astype(np.float32)
    return x, np.argmax(x @ rng.normal(size=(WIDTH, CLASSES)), axis=1)


def classifier(loss, dropout=False):
    """A model with a ranking loss."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((WIDTH,)),
            keras.layers.Dense(8, "relu"),
            *([keras.layers.Dropout(0.2)] if dropout else []),
            layers.DotProductHead(CLASSES),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), loss)
    return model


def extreme_classifier():
    """An `ExtremeClassifier` whose optimizer updates only the rows that a step touches."""
    keras.utils.set_random_seed(0)
    encoder = keras.Sequential([keras.layers.Input((WIDTH,)), keras.layers.Dense(4)])
    model = models.ExtremeClassifier(encoder, CLASSES, 4, num_sampled=5, seed=1)
    model.compile(optimizers.RowwiseAdagrad(0.1), losses.SoftmaxLoss())
    return model


def end_state(model):
    """All variables of a model and of its optimizer."""
    variables = model.optimizer.variables
    own = variables() if callable(variables) else variables
    return [np.asarray(x) for x in [*model.get_weights(), *map(tf.convert_to_tensor, own)]]


def by_example(make):
    """Trains like examples/resume_training.py, with examples in another order each epoch."""

    def train(folder):
        model = make()
        examples = tf.data.Dataset.from_tensor_slices(data())
        # A random loss, whose state is in TensorFlow's checkpoints.
        trackable = isinstance(model.loss, tf.__internal__.tracking.Trackable)
        resume_training.train(
            model,
            lambda epoch: examples.shuffle(len(examples), seed=epoch).batch(BATCH),
            EPOCHS,
            folder / "checkpoints",
            **({"loss": model.loss} if trackable else {}),
        )
        return end_state(model)

    return train


def by_backup(make, **options):
    """Trains with Keras's own callback, with the examples in the same order each epoch."""

    def train(folder):
        model = make()
        callback = keras.callbacks.BackupAndRestore(str(folder / "backup"), **options)
        model.fit(*data(), BATCH, EPOCHS, shuffle=False, callbacks=[callback], verbose=2)
        return end_state(model)

    return train


def of_sorter(folder):
    """Trains a sorter with train_sorter.py, with a checkpoint every tenth of a second."""
    train_sorter.REPORT_SECONDS = 0.1
    settings = "--sorter convolutional --units 4 --frequencies 2 --items 800 --test-lists 5"
    train_sorter.main([*settings.split(), "--steps=30", "--resume", f"--output={folder}"])
    with np.load(folder / "convolutional_sorter.npz") as arrays:
        return [arrays[name] for name in sorted(arrays.files)]


def by_workers(folder):
    """Trains as one of several processes, with Keras's own callback."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = classifier(losses.SoftmaxLoss())
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(BATCH)
    callback = keras.callbacks.BackupAndRestore(str(folder / "backup"))
    model.fit(dataset, epochs=EPOCHS, callbacks=[callback], verbose=2)
    return end_state(model)


def by_workers_with_shards(folder):
    """Trains as one of several processes, each of which has some of the classes.

    After each epoch, all processes write their weights, and with them all classes. A new run reads
    the file of the first process. Keras 3 cannot restore a `tf.train.Checkpoint` under this
    strategy, with any model.
    """
    in_cluster = "TF_CONFIG" in os.environ
    strategy = (
        tf.distribute.MultiWorkerMirroredStrategy() if in_cluster else tf.distribute.get_strategy()
    )
    keras.utils.set_random_seed(0)
    with strategy.scope():
        classes = layers.ShardedClassTable(CLASSES, 4, optimizers.RowwiseAdagrad(0.1), seed=1)
        encoder = keras.Sequential([keras.layers.Input((WIDTH,)), keras.layers.Dense(4)])
        model = models.ExtremeClassifier(encoder, classes, 4, num_sampled=None, seed=1)
        model.compile(optimizers.RowwiseAdagrad(0.1), losses.SoftmaxLoss())
        model.optimizer.build(model.trainable_variables)
    examples = tf.data.Dataset.from_tensor_slices(data())
    names = {path.name for path in folder.glob("epoch-*.weights.h5")}
    done = max((int(name[6:-11]) for name in names), default=0)
    if done:
        model.load_weights(folder / f"epoch-{done}.weights.h5")
    with _folder() as own:
        if not in_cluster or not strategy.cluster_resolver.task_id:
            own = folder
        for epoch in range(done, EPOCHS):
            # Under a strategy, Keras 3 reads a batch before it trains; this changes no order here.
            batches = examples.shuffle(len(examples), epoch, reshuffle_each_iteration=False)
            batches = batches.batch(BATCH)
            model.fit(batches, initial_epoch=epoch, epochs=epoch + 1, shuffle=False, verbose=2)
            model.save_weights(own / "new.weights.h5")
            os.replace(own / "new.weights.h5", own / f"epoch-{epoch + 1}.weights.h5")
    return [*end_state(model), *classes.shards.values().values()]


def cases():
    """All cases of this Keras."""
    manager = (tf.train.CheckpointManager, "save")
    backup = (keras.callbacks.BackupAndRestore, "_save_model" if KERAS_3 else "_backup")
    weights = (keras.Model, "save_weights")
    sampled = {"num_sampled": 4, "seed": 1}

    def softmax():
        return classifier(losses.SoftmaxLoss())

    def snm():
        return classifier(losses.StochasticNegativeMiningLoss(**sampled))

    random_losses = {
        "StochasticNegativeMiningLoss": snm,
        "GumbelApproxNDCGLoss": lambda: classifier(losses.GumbelApproxNDCGLoss(seed=1)),
        "WARPLoss": lambda: classifier(losses.WARPLoss(seed=1)),
    }
    third = 1 / 3
    shards = "two workers, classes in shards"
    listed = [
        Case(shards, by_workers_with_shards, weights, 0.2, workers=2),
        Case(f"{shards}, then one", by_workers_with_shards, weights, 0.2, 2, last_workers=1),
        Case("SoftmaxLoss, resume_training.py", by_example(softmax), manager),
        *(
            Case(f"{name}, resume_training.py", by_example(make), manager, third)
            for name, make in random_losses.items()
        ),
        Case("ExtremeClassifier, resume_training.py", by_example(extreme_classifier), manager),
        Case("sorter, train_sorter.py --resume", of_sorter, (train_sorter.Trainer, "save")),
        Case("SoftmaxLoss, BackupAndRestore", by_backup(softmax), backup),
        Case("StochasticNegativeMiningLoss, BackupAndRestore", by_backup(snm), backup, third),
        Case("ExtremeClassifier, BackupAndRestore", by_backup(extreme_classifier), backup, third),
    ]
    if KERAS_3:
        twice = by_backup(softmax, double_checkpoint=True)
        dropout = by_example(lambda: classifier(losses.SoftmaxLoss(), dropout=True))
        return [
            *listed,
            Case("SoftmaxLoss and dropout, resume_training.py", dropout, manager, third),
            Case("SoftmaxLoss, BackupAndRestore(double_checkpoint)", twice, backup),
        ]
    return [*listed, Case("two workers, BackupAndRestore", by_workers, backup, 0.2, workers=2)]


class Run:
    """A run of a case in processes of its own, which go on from what is in the folder.

    Args:
        case: the case.
        folder: the folder.
        full_at: from this save on, counted from 1, no file may be longer than `limit`.
        limit: maximum length of a file in bytes.
        workers: how many processes, if not the number of the case.
    """

    def __init__(self, case, folder, full_at=None, limit=0, workers=None):
        self.case, self.folder = case, folder
        self.full = full_at, limit
        self.started = time.monotonic()
        workers = workers or case.workers
        ports = [_free_port() for _ in range(workers)]
        self.progress = [Progress() for _ in ports]
        self.pids = [self._fork(worker, ports) for worker in range(workers)]
        self.status = {}

    def _fork(self, worker, ports):
        sys.stdout.flush()
        if pid := os.fork():
            return pid
        code = 1
        try:
            with open(self.folder / f"log{worker}", "a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            if len(ports) > 1:
                cluster = {"worker": [f"localhost:{port}" for port in ports]}
                task = {"type": "worker", "index": worker}
                os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
            self._tell_of_saves(self.progress[worker])
            arrays = self.case.train(self.folder)
            if not worker:
                with _files.replacing(self.folder / "end.npz") as path:
                    np.savez(path, *arrays)
            code = 0
        except BaseException as error:
            traceback.print_exc()
            message = str(error).strip().splitlines() or [""]
            (self.folder / f"error{worker}").write_text(f"{type(error).__name__}: {message[0]}")
        finally:
            os._exit(code)

    def _tell_of_saves(self, progress):
        owner, name = self.case.saves
        save, count = getattr(owner, name), 0
        full_at, limit = self.full

        def told(*args, **kwargs):
            nonlocal count
            count += 1
            before = time.monotonic()
            progress.set(True, count, 0)
            with _longest_file(limit if full_at and count >= full_at else resource.RLIM_INFINITY):
                result = save(*args, **kwargs)
            progress.set(False, count, time.monotonic() - before)
            return result

        setattr(owner, name, told)

    def poll(self):
        """Whether all processes have ended."""
        for pid in self.pids:
            if pid not in self.status:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self.status[pid] = status
        return len(self.status) == len(self.pids)

    def wait(self, seconds=TIME_LIMIT):
        """Waits for the end, and kills processes that hang; returns whether any did."""
        until = time.monotonic() + seconds
        while not self.poll():
            if time.monotonic() > until:
                self.kill(range(len(self.pids)))
                return True
            time.sleep(0.005)
        return False

    def kill(self, workers):
        """Kills processes; returns whether one of them was writing a checkpoint."""
        saving = False
        for worker in workers:
            pid = self.pids[worker]
            if pid not in self.status:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self.status[pid] = 0
                saving |= self.progress[worker].get()[0]
        return saving

    def end(self):
        """The arrays of the end state, or the error as text."""
        if (self.folder / "end.npz").exists():
            with np.load(self.folder / "end.npz") as arrays:
                return list(arrays.values())
        errors = [self.folder / f"error{worker}" for worker in range(len(self.pids))]
        ended = f"the process ended without a Python error: {list(self.status.values())}"
        return next((path.read_text() for path in errors if path.exists()), ended)


@contextlib.contextmanager
def _longest_file(limit):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def _free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def _folder():
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name)


def same(found, expected, tolerance=0.0):
    """Whether two end states are the same, bit by bit or within a tolerance."""
    return len(found) == len(expected) and all(
        x.dtype == y.dtype
        and x.shape == y.shape
        and (x.tobytes() == y.tobytes() or bool(tolerance and np.all(abs(x - y) <= tolerance)))
        for x, y in zip(found, expected, strict=True)
    )


def undisturbed(case):
    """The end state, how long a run takes, the number of saves, and the time of one save."""
    ends = []
    for _ in range(2):
        with _folder() as folder:
            run = Run(case, folder)
            run.wait()
            seconds, end = time.monotonic() - run.started, run.end()
            _, saves, of_save = run.progress[0].get()
            if not isinstance(end, list):
                raise RuntimeError(f"{case.name}: {end} {(folder / 'log0').read_text()[-2000:]}")
            ends.append(end)
    if not same(*ends):
        raise RuntimeError(f"{case.name}: two runs that nothing disturbed do not end the same.")
    return ends[0], seconds, saves, of_save


class Tally(collections.Counter):
    """Counts how runs ended, and their errors."""

    def __init__(self):
        super().__init__()
        self.errors = collections.Counter()
        self.seconds = []  # How long other processes went on after a kill.

    def add(self, end, expected, tolerance=0.0):
        """Counts the end of a run."""
        if isinstance(end, list):
            self["same" if same(end, expected, tolerance) else "other"] += 1
        else:
            self["error"] += 1
            self.errors[_general(str(end))] += 1

    def as_json(self):
        """The counts, to be written to a file."""
        errors = dict(self.errors.most_common(6))
        return {**self, "errors": errors, "seconds": max(self.seconds, default=0)}


def _general(message):
    """The text of an error, without the parts that differ from run to run."""
    words = message[:300].replace("`", "'").replace("|", "/").split()
    words = ["..." if tempfile.gettempdir() in word else word for word in words]
    return re.sub(r"\d[\d:]*", "#", " ".join(words))[:120]


def kill_and_resume(case, expected, kills, rng):
    """Kills runs the given number of times, in chains of one to four kills and an end."""
    end, seconds, saves, of_save = expected
    tally, done = Tally(), 0
    while done < kills:
        with _folder() as folder:
            tally["chains"] += 1
            left = min(rng.randint(1, 4), kills - done)
            while True:
                run = Run(case, folder, workers=None if left else case.last_workers)
                if left and rng.random() < 0.5:
                    killed = _at_moment(run, rng.uniform(0, seconds))
                elif left:
                    killed = _while_saving(run, rng.randint(1, saves), rng.uniform(0, of_save))
                else:
                    tally["hung"] += run.wait()
                    killed = None
                if killed is None:
                    tally.add(run.end(), end, 1e-5 if case.last_workers else 0.0)
                    break
                tally.seconds.append(run.seconds_after_kill)
                done += 1
                left -= 1
                tally["kills"] += 1
                tally["while saving"] += killed
                for name in folder.glob("error*"):  # Written by the worker that lost the other.
                    tally.errors["the other worker: " + _general(name.read_text())] += 1
                    name.unlink()
    return tally.as_json()


def _at_moment(run, seconds):
    """Kills one process after a delay; None if the run ended before, else whether it was saving."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if run.poll():
            return None
        time.sleep(0.001)
    return _killed(run)


def _while_saving(run, count, seconds):
    """Kills in the middle of the save with this number, if there are so many saves."""
    worker = 0  # Only the first of several workers writes.
    while not run.poll():
        saving, number, _ = run.progress[worker].get()
        if saving and number >= count:
            time.sleep(seconds)
            return _killed(run)
        time.sleep(0.0003)
    return None


def _stop_after(run, count):
    """Kills all processes after this number of saves, but not during a save."""
    while not run.poll():
        saving, number, _ = run.progress[0].get()
        if number >= count and not saving:
            break
        time.sleep(0.0003)
    run.kill(range(len(run.pids)))


def _killed(run):
    saved, before = run.kill([random.randrange(len(run.pids))]), time.monotonic()
    run.wait(60)  # The other processes should end by themselves.
    run.seconds_after_kill = time.monotonic() - before
    return saved


def fill_disk(case, expected, times, rng):
    """Limits files to a random size from a random save on; the next run has space again."""
    end, _, saves, _ = expected
    tally = Tally()
    with _folder() as folder:
        run = Run(case, folder)
        _stop_after(run, saves - 1)
        sizes = [path.stat().st_size for path in folder.rglob("*") if _is_state(path)]
    for _ in range(times):
        with _folder() as folder:
            limit = rng.randrange(max(sizes))
            run = Run(case, folder, full_at=rng.randint(1, saves), limit=limit)
            run.wait()
            first = run.end()
            if isinstance(first, list):
                tally["went on"] += 1
                tally.add(first, end)
                continue
            tally["stopped"] += 1
            tally.errors["full: " + _general(str(first))] += 1
            for name in folder.glob("error*"):
                name.unlink()
            run = Run(case, folder)
            run.wait()
            tally.add(run.end(), end)
    return tally.as_json()


def _is_state(path):
    return path.is_file() and not path.name.startswith(("log", "error", "end"))


def damage(case, expected, times, rng):
    """Cuts a file of the state of a killed run, or flips one of its bits."""
    end, _, saves, _ = expected
    tallies = {"cut": Tally(), "flipped": Tally()}
    with _folder() as kept:
        run = Run(case, kept)
        _stop_after(run, max(2, saves // 2))
        for i in range(times):
            kind = ("cut", "flipped")[i % 2]
            with _folder() as folder:
                shutil.copytree(kept, folder, dirs_exist_ok=True)
                files = sorted(path for path in folder.rglob("*") if _is_state(path))
                (path,) = rng.choices(files, [path.stat().st_size for path in files])
                content = bytearray(path.read_bytes())
                at = rng.randrange(len(content))
                if kind == "cut":
                    del content[at:]
                else:
                    content[at] ^= 1 << rng.randrange(8)
                path.write_bytes(content)
                run = Run(case, folder)
                tallies[kind]["hung"] += run.wait()
                tallies[kind].add(run.end(), end)
    return {kind: tally.as_json() for kind, tally in tallies.items()}


def table(results):
    """The tables, as Markdown."""

    def counts(of, *names):
        return [str(of.get(name, 0)) for name in names]

    killed, full, damaged = [], [], []
    for name, found in results.items():
        of = found["killed"]
        killed.append(
            [
                name,
                *counts(of, "kills", "while saving", "chains", "same", "other", "error"),
                f"{of['seconds']:.0f}",
            ]
        )
        of = found["full disk"]
        times = of.get("stopped", 0) + of.get("went on", 0)
        full.append([name, str(times), *counts(of, "stopped", "same", "other", "error")])
        kinds = (counts(found["damaged"][kind], *ENDS) for kind in ("cut", "flipped"))
        damaged.append([name, *itertools.chain(*kinds)])
    head = ["killed", "kills", "of these while saving", "ends", *ENDS, "the other ended after s"]
    lines = [*tables.table(head, killed, 7), ""]
    head = ["disk full", "times", "stopped with an error", "then the same", *ENDS[1:]]
    lines += [*tables.table(head, full, 5), ""]
    head = ["damaged", "cut: same", *ENDS[1:], "flipped: same", *ENDS[1:]]
    lines += [*tables.table(head, damaged, 6), "", "Errors, and how often:", ""]
    for name, found in results.items():
        kinds = {"killed": found["killed"], "full disk": found["full disk"], **found["damaged"]}
        for what, of in kinds.items():
            lines += [f"- {name}, {what}: {text} ({n})" for text, n in of["errors"].items()]
    return "\n".join(lines)


def main(argv=None):
    """Runs all cases, or only the named ones."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kills per case")
    parser.add_argument("--damages", type=int, default=10, help="damaged checkpoints per case")
    parser.add_argument("--only", default="", help="run only cases whose names contain this")
    parser.add_argument("--seed", type=command_line.seed, default=0)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args(argv)
    names = [case.name for case in cases()]
    if not any(args.only in name for name in names):
        parser.error(
            f"--only must be part of one of the names {', '.join(names)}, not {args.only!r}"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for case in cases():
        path = args.out / f"{''.join(c if c.isalnum() else '_' for c in case.name)}.json"
        if args.only in case.name and not path.exists():
            rng = random.Random(f"{args.seed} {case.name}")
            expected = undisturbed(case)
            damages = args.damages if case.workers == 1 else 0
            found = {
                "killed": kill_and_resume(case, expected, math.ceil(args.kills * case.share), rng),
                "full disk": fill_disk(case, expected, damages, rng),
                "damaged": damage(case, expected, 2 * damages, rng),
            }
            _files.write_text(path, json.dumps(found, indent=1))
        if path.exists():
            results[case.name] = json.loads(path.read_text())
            print(f"{case.name}: {json.dumps(results[case.name])}", flush=True)
    text = table(results)
    _files.write_text(args.out / "table.md", text + "\n")
    print(text)
    return results


if __name__ == "__main__":
    main()
