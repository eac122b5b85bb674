"""Kills training, fills the disk, damages checkpoints; compares to an undisturbed run.

    python -m scripts.robustness.faults --kills 100 --damages 6
    TF_USE_LEGACY_KERAS=1 python -m scripts.robustness.faults --kills 30 --damages 2

Each case trains a tiny model to its end in a process of its own, which resumes from
what it finds in its folder. The process is killed by SIGKILL: in one half of the cases
at a random moment, in the other half while it writes a checkpoint. It is started again,
killed again up to four times, and then left to end. Then the weights of the model and
of its optimizer are compared, bit by bit, with an undisturbed run. `--damages` is how
many times the disk is full while a checkpoint is written (the next run has space
again), a checkpoint is cut, and one of its bits is flipped, before a run resumes from
it.

A row says how often the end was the same or different, or an error, and with which
errors. All cases with 100 kills take an hour. `--quick` kills one case twice.
"""

import collections
import contextlib
import math
import mmap
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow import keras

from examples import resume_training
from rank4class_tf import _files, layers, losses, models, optimizers
from scripts import command_line, tables

KERAS_3 = hasattr(keras, "ops")
EPOCHS, BATCH, CLASSES, WIDTH = 8, 16, 12, 6
TIME_LIMIT = 1800  # A run that takes longer hangs, even on a busy machine.


def data():
    """Points and their classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5 * BATCH, WIDTH)).astype(np.float32)
    return x, np.argmax(x @ rng.normal(size=(WIDTH, CLASSES)), axis=1)


def classifier(loss, dropout=0.0):
    """A model with a ranking loss."""
    keras.utils.set_random_seed(0)
    hidden = [
        keras.layers.Dense(8, "relu"),
        *([keras.layers.Dropout(dropout)] if dropout else []),
    ]
    head = layers.DotProductHead(CLASSES)
    model = keras.Sequential([keras.layers.Input((WIDTH,)), *hidden, head])
    model.compile(keras.optimizers.Adam(0.01), loss)
    return model


def extreme_classifier():
    """An `ExtremeClassifier` whose optimizer updates only rows that a step touches."""
    keras.utils.set_random_seed(0)
    encoder = keras.Sequential([keras.layers.Input((WIDTH,)), keras.layers.Dense(4)])
    model = models.ExtremeClassifier(encoder, CLASSES, 4, num_sampled=5, seed=1)
    model.compile(optimizers.RowwiseAdagrad(0.1), losses.SoftmaxLoss())
    return model


def end_state(model):
    """All variables of a model and of its optimizer."""
    variables = model.optimizer.variables
    own = variables() if callable(variables) else variables
    return [
        np.asarray(x) for x in [*model.get_weights(), *map(tf.convert_to_tensor, own)]
    ]


def by_example(make):
    """Trains like examples/resume_training.py, with examples reordered each epoch."""

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
    """Trains with Keras's own callback, the examples in the same order each epoch."""

    def train(folder):
        model = make()
        callback = keras.callbacks.BackupAndRestore(str(folder / "backup"), **options)
        model.fit(
            *data(), BATCH, EPOCHS, shuffle=False, callbacks=[callback], verbose=2
        )
        return end_state(model)

    return train


# How a case trains, and the class and the name of the method that writes its
# checkpoints.
Case = collections.namedtuple("Case", "train saves")


def cases():
    """Name -> case, of this Keras."""
    manager = (tf.train.CheckpointManager, "save")
    backup = (keras.callbacks.BackupAndRestore, "_save_model" if KERAS_3 else "_backup")

    def softmax(dropout=0.0):
        return classifier(losses.SoftmaxLoss(), dropout)

    def snm():
        return classifier(losses.StochasticNegativeMiningLoss(num_sampled=4, seed=1))

    found = {
        "SoftmaxLoss, resume_training.py": Case(by_example(softmax), manager),
        "SNM, resume_training.py": Case(by_example(snm), manager),
        "ExtremeClassifier, resume_training.py": Case(
            by_example(extreme_classifier), manager
        ),
        "SoftmaxLoss, BackupAndRestore": Case(by_backup(softmax), backup),
    }
    if KERAS_3:
        dropout = Case(by_example(lambda: softmax(0.2)), manager)
        found["SoftmaxLoss and dropout, resume_training.py"] = dropout
        twice = Case(by_backup(softmax, double_checkpoint=True), backup)
        found["SoftmaxLoss, BackupAndRestore(double_checkpoint)"] = twice
    return found


@contextlib.contextmanager
def longest_file(limit):
    """Within it, no file may be longer."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


SAVES = struct.Struct("<?3xid")


class Saves(NamedTuple):
    """How far a run is, as its process tells in memory that both share."""

    saving: bool
    number: int
    seconds: float  # of the last one


class Run:
    """A run of a case in its own process, which goes on from what is in the folder.

    Attributes:
        pid: the process.
        ended: whether it is known to have ended.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.ended = False
        self._progress = mmap.mmap(-1, SAVES.size)

    @classmethod
    def start(cls, case, folder, full_at=math.inf, limit=0):
        """Starts a run.

        From the save `full_at` on, counted from 1, no file may be longer than `limit`
        bytes.
        """
        run = cls(folder)
        sys.stdout.flush()
        run.pid = os.fork()
        if run.pid:
            return run
        try:
            with open(run.folder / "log", "a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            run._tell_of_saves(*case.saves, full_at, limit)
            arrays = case.train(run.folder)
            with _files.replacing(run.folder / "end.npz") as path:
                np.savez(path, *arrays)
        except BaseException as error:
            traceback.print_exc()
            message = str(error).strip().splitlines() or [""]
            (run.folder / "error").write_text(f"{type(error).__name__}: {message[0]}")
        finally:
            os._exit(0)

    def _tell_of_saves(self, owner, name, full_at, limit):
        save = getattr(owner, name)
        count = 0

        def told(*args, **kwargs):
            nonlocal count
            count += 1
            before = time.monotonic()
            self._progress[:] = SAVES.pack(True, count, 0)
            with longest_file(limit if count >= full_at else resource.RLIM_INFINITY):
                result = save(*args, **kwargs)
            seconds = time.monotonic() - before
            self._progress[:] = SAVES.pack(False, count, seconds)
            return result

        setattr(owner, name, told)

    def saves(self):
        """The saves so far."""
        return Saves(*SAVES.unpack(self._progress[:]))

    def is_saving(self, count):
        """Whether the run is in a save, and it is this one or a later one."""
        saves = self.saves()
        return saves.saving and saves.number >= count

    def has_saved(self, count):
        """Whether the run has ended so many saves, and is in none."""
        saves = self.saves()
        return saves.number >= count and not saves.saving

    def wait(self, until=lambda: False, seconds=TIME_LIMIT):
        """Waits till something is true or the run has ended; returns whether it has."""
        end = time.monotonic() + seconds
        while not self.ended:
            self.ended = os.waitpid(self.pid, os.WNOHANG)[0] != 0
            if until() or time.monotonic() > end:
                break
            time.sleep(0.0003)
        return self.ended

    def kill(self):
        """Kills the process; returns whether it had not ended by itself."""
        if self.ended:
            return False
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.ended = True
        return os.waitstatus_to_exitcode(status) == -signal.SIGKILL

    def end(self):
        """The arrays of the end state, or the error as text."""
        if not self.wait():
            self.kill()
            return "the run hung"
        if (self.folder / "end.npz").exists():
            with np.load(self.folder / "end.npz") as arrays:
                return list(arrays.values())
        error = self.folder / "error"
        if error.exists():
            return error.read_text()
        return "the process ended without a Python error"


def same(found, expected):
    """Whether two end states are the same, bit by bit."""
    return len(found) == len(expected) and all(
        (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())
        for x, y in zip(found, expected, strict=True)
    )


class Drill:
    """Disturbs the runs of a case, and counts how they end.

    Attributes:
        counts: how often, by what was done and how the run ended.
        errors: how often each error.
    """

    def __init__(self, case, seed):
        self.case = case
        self.rng = random.Random(seed)
        self.counts = collections.Counter()
        self.errors = collections.Counter()
        ends = []
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                before = time.monotonic()
                run = Run.start(case, folder)
                ends.append(run.end())
                self.seconds = time.monotonic() - before
                self.saves = run.saves().number
                self.of_save = run.saves().seconds
        if isinstance(ends[0], str) or not same(*ends):
            raise RuntimeError(
                f"Two runs that nothing disturbed do not end the same: {ends[0]}"
            )
        self.expected = ends[0]

    def add(self, what, end):
        """Counts the end of a run."""
        if isinstance(end, list):
            self.counts[what, "same" if same(end, self.expected) else "other"] += 1
        else:
            self.counts[what, "error"] += 1
            text = end[:300].replace("`", "'").replace("|", "/")
            words = ["..." if tempfile.gettempdir() in x else x for x in text.split()]
            error = re.sub(r"\d[\d:]*", "#", " ".join(words))[:120]
            self.errors[f"{what}: {error}"] += 1

    def kill(self, kills):
        """Kills runs so many times, in chains of one to four kills and an end."""
        done = 0
        while done < kills:
            with tempfile.TemporaryDirectory() as folder:
                left = min(self.rng.randint(1, 4), kills - done)
                while left and self._killed(Run.start(self.case, folder)):
                    done += 1
                    left -= 1
                self.add("killed", Run.start(self.case, folder).end())

    def _killed(self, run):
        """Kills a run; returns whether it had not ended before."""
        rng = self.rng
        if rng.random() < 0.5:
            run.wait(seconds=rng.uniform(0, self.seconds))
        else:
            count = rng.randint(1, self.saves)
            delay = rng.uniform(0, self.of_save)
            if not run.wait(until=lambda: run.is_saving(count)):
                time.sleep(delay)

        is_killed = run.kill()
        if is_killed:
            self.counts["killed", "saving"] += run.saves().saving
            self.counts["killed", "kills"] += 1
        return is_killed

    def stopped(self, folder, count):
        """The files of a run that is killed after a number of saves."""
        run = Run.start(self.case, folder)
        run.wait(until=lambda: run.has_saved(count))
        run.kill()
        files = []
        for path in sorted(run.folder.rglob("*")):
            if path.is_file() and path.name not in ("log", "error", "end.npz"):
                files.append(path)
        return files

    def fill_disk(self, times):
        """Limits files to a random size from a random save on, until the next run."""
        with tempfile.TemporaryDirectory() as folder:
            files = self.stopped(folder, self.saves - 1)
            largest = max(path.stat().st_size for path in files)
        for _ in range(times):
            with tempfile.TemporaryDirectory() as folder:
                full_at = self.rng.randint(1, self.saves)
                limit = self.rng.randrange(largest)
                end = Run.start(self.case, folder, full_at, limit).end()
                if isinstance(end, str):
                    pathlib.Path(folder, "error").unlink(missing_ok=True)
                    end = Run.start(self.case, folder).end()
                self.add("disk full", end)

    def damage(self, times):
        """Cuts a file of the state of a killed run, or flips one of its bits."""
        with tempfile.TemporaryDirectory() as kept:
            files = self.stopped(kept, max(2, self.saves // 2))
            sizes = [path.stat().st_size for path in files]
            for kind in ["cut", "flipped"] * times:
                with tempfile.TemporaryDirectory() as folder:
                    shutil.copytree(kept, folder, dirs_exist_ok=True)
                    (path,) = self.rng.choices(files, sizes)
                    content = bytearray(path.read_bytes())
                    at = self.rng.randrange(len(content))
                    if kind == "cut":
                        del content[at:]
                    else:
                        content[at] ^= 1 << self.rng.randrange(8)
                    pathlib.Path(folder, path.relative_to(kept)).write_bytes(content)
                    self.add(kind, Run.start(self.case, folder).end())


ENDS = ("same", "other", "error")


def row(name, drill):
    """The row of a case."""
    cells = [str(drill.counts["killed", x]) for x in ("kills", "saving", *ENDS)]
    for kind in ("disk full", "cut", "flipped"):
        ends = {end: drill.counts[kind, end] for end in ENDS if drill.counts[kind, end]}
        cells.append(", ".join(f"{end} {count}" for end, count in ends.items()))
    return [name, *cells]


def main(argv=None):
    """Drills the cases and prints a table."""
    names = list(cases())
    quick = {"kills": 2, "damages": 1, "only": names[:1]}
    parser = command_line.Parser(__spec__, __doc__, quick)
    parser.add_value("--kills", int, 100, "kills per case")
    parser.add_value("--damages", int, 10, "damages of each kind per case")
    parser.add_names("--only", names, "cases")
    parser.add_value("--seed", command_line.seed, 0, "of the kills")
    parser.add_value("--csv", pathlib.Path, None, "a file for the table")
    args = parser.parse_args(argv)

    rows = []
    errors = []
    for name in args.only:
        drill = Drill(cases()[name], f"{args.seed} {name}")
        drill.kill(args.kills)
        drill.fill_disk(args.damages)
        drill.damage(args.damages)
        rows.append(row(name, drill))
        print(" | ".join(rows[-1]), flush=True)
        for error, count in drill.errors.most_common():
            errors.append(f"- {name}, {error} ({count})")
    head = [
        "case",
        "kills",
        "of these while saving",
        *ENDS,
        "disk full",
        "cut",
        "flipped",
    ]
    tables.show(head, rows, 8, args.csv)
    print("\n".join(["", *errors]))


if __name__ == "__main__":
    main()
