"""Tests every loss, head, metric, sorter and model under strategies, modes and precisions.

    python -m scripts.robustness.strategy_matrix --out docs/results/strategies.md --folder matrix

The script runs under Keras 3 and Keras 2. Each cell trains small models with Keras's `fit` and
`evaluate`. A model has an output for each object of the contract tests' tables (`tests/contract`).
The cell is compared with the same models on one device, in graph mode, in float32: the weights,
relative to the change that training made, and the losses and metrics of `evaluate`.

The last batch has three examples, which is uneven for two replicas (2 + 1). Keras takes the mean of
the replicas' means, so the comparison gives the examples these weights. Another cell has a last
batch of one example (1 + 0). Each cell also has a loss of Keras, which reads no labels. If that
fails or differs too, the objects are not the cause, and the table says so.

Random objects draw different numbers on each replica. Under strategies they are compared with
`MirroredStrategy` in graph mode.

Each strategy gets all objects in graph mode in float32. Every other mode, precision and form of
labels is run separately, with a few objects of each kind, one for each path through the code that
they share. The results of a cell are a JSON file in the folder; a cell with such a file is not run
again.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np

from scripts import command_line, tables

KERAS = {"3": "", "2": "1"}  # The environment variable TF_USE_LEGACY_KERAS.
STRATEGIES = ("one", "mirrored", "multi_worker", "parameter_server")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
LABELS = {
    "losses": ("ids", "padded", "ragged", "relevance"),
    "metrics": ("ids", "padded", "ragged", "relevance"),
    "heads": ("ids",),
    "sorters": ("numbers",),
    "models": ("ids", "padded", "ragged"),
}
# Objects that stand for the others; for losses and metrics, the tables name them.
FEW = {
    "heads": {"dot_product", "latent_cross", "encoded_array"},
    "sorters": {"laplace", "set"},
}
# Tolerances for weights, relative to what training changed, and for values of `evaluate`.
TOLERANCES = {"float32": 1e-4, "mixed_float16": 2e-2, "mixed_bfloat16": 1e-1}

INTRODUCTION = """
# Strategies

**What to do.** In Keras 3.15, train on several workers with `ExtremeClassifier`, `TwoTower`, or a
model of your own that derives from `models.MultiWorker`
([how](../distribution.md#several-machines)). Any other Keras 3.15 model fails under
`MultiWorkerMirroredStrategy`. On one machine, `MirroredStrategy` works with Keras 3 and Keras 2.
Parameter servers need Keras 2 (`TF_USE_LEGACY_KERAS=1`). In Keras 3, pad ragged labels
(`labels.to_tensor(-1, shape=[None, P])`) unless the model derives from `MultiWorker`. Leave out
`jit_compile=True` under every strategy. These limits come from Keras and apply to any model. Apart
from them, all parts of this package give the same results as on one device, with four exceptions:
uneven batches in `fit` and random draws (see below), the sorter `set`, whose network is sensitive
to rounding, and `MeanAveragePrecision` and `SpearmanCorrelation`, which reject several replicas.

The tables were measured without `MultiWorker`, so they have no row for Keras 3 with several
workers. `tests/models/test_multi_worker.py` compares two such workers with one process.

`python -m scripts.robustness.strategy_matrix --out docs/results/strategies.md` trains small
models with Keras's `fit` on two replicas or processes of one machine, and compares them with one
device in graph mode in float32. An entry says how many objects agree, and gives the largest
difference. Weights are compared relative to the change that training made, losses and metrics
relative to their size. The tolerances are 1e-4 in float32, 0.02 in float16 and 0.1 in bfloat16.
The first column covers all objects of a kind, the others only a few. The models are
`ExtremeClassifier`s with sampled classes. "Keras" means that a plain Keras loss fails there too.
"trains" means that training works and there is no reference to compare with. A blank cell has not
been run.

The last batch has three examples, which is 2 + 1 on two replicas. Keras takes the mean of the
replicas' means, so the examples have different weights than on one device; the reference uses the
same weights. The same holds for a last batch of 1 + 0, whose step is half that of one device.

Losses with random draws, dropout, and `ExtremeClassifier` with several classes per example draw
different numbers on each replica. For these, the reference on two replicas is `MirroredStrategy` in
graph mode, not one device. So in graph mode with float32, the `mirrored` rows leave them out.

In float16 the loss is scaled by 128 from the start. With Keras's default of 2**15, the first steps
would overflow and be skipped. The sorter `set` is a float32 network. In each mode its gradient
differs from the one in float64 by 5e-5; four steps turn this into a difference of up to 1e-3
between two modes. In half precision its ranks are exactly those of the rounded scores. But rounding
the scores to bfloat16 changes its gradient by 40 % (that of the recurrent sorter by 7 %), and so
the trained weights.

Under `MirroredStrategy`, plain Keras 3.15 models fail with ragged labels and with a dataset whose
first batch is uneven. That is why "2 steps at once" has even batches. Keras 3.15 and Keras 2 both
fail with `jit_compile=True` under a strategy.
"""
FAILURES = (
    "Each line is an error, or an object whose difference exceeds the tolerance. Brackets say "
    "where."
)

FEATURES, CLASSES, BATCH = 3, 6, 4
EXAMPLES = {"even": 8, "uneven": 7, "one_left": 5}
CONTROL = "control"


@dataclasses.dataclass(frozen=True)
class Cell:
    """The models of a cell, and how they are trained.

    Attributes:
        kind: a key of `LABELS`.
        labels: the form of the labels.
        mode: graph, eager, xla, or two_steps: a graph with `steps_per_execution=2`.
        precision: Keras's dtype policy.
        data: a key of `EXAMPLES`. XLA gets `even`, since it compiles anew for each batch size.
        weighted: whether examples have the weights that two replicas give them.
        few: whether a few objects stand for all.
    """

    kind: str
    labels: str
    mode: str = "graph"
    precision: str = "float32"
    data: str = "uneven"
    weighted: bool = False
    few: bool = False

    @property
    def name(self):
        """The name of the cell's file."""
        parts = [self.kind, self.labels, self.mode, self.precision, self.data]
        return "-".join(parts + ["weighted"] * self.weighted + ["few"] * self.few)

    @classmethod
    def of_name(cls, name):
        """The cell of this name."""
        kind, labels, mode, precision, data, *rest = name.split("-")
        return cls(kind, labels, mode, precision, data, "weighted" in rest, "few" in rest)

    @property
    def is_plain(self):
        """Whether the cell is in graph mode and in float32."""
        return (self.mode, self.precision) == ("graph", "float32")

    def reference(self, strategy):
        """The cell on one device that this one should equal under a strategy.

        It has as many objects, since the initial weights of each depend on the objects before it.
        """
        weighted = strategy in ("mirrored", "multi_worker") and self.data != "even"
        return Cell(self.kind, self.labels, data=self.data, weighted=weighted, few=self.few)


def row(kind):
    """The cells of a kind under a strategy, in the order of the table."""
    first, *forms = LABELS[kind]
    result = [Cell(kind, first), *(Cell(kind, form, few=True) for form in forms)]
    result += [Cell(kind, first, precision=precision, few=True) for precision in PRECISIONS[1:]]
    result.append(Cell(kind, first, "eager", few=True))
    result.append(Cell(kind, first, "xla", data="even", few=True))
    if kind == "losses":
        result.append(Cell(kind, "ids", "two_steps", data="even", few=True))
        result.append(Cell(kind, "ids", data="one_left", few=True))
    return result


def cells(strategy):
    """The cells of a strategy, the reference cells first."""
    result = [cell for kind in LABELS for cell in row(kind)]
    if strategy == "one":
        weighted = [cell.reference("mirrored") for cell in result]
        result = [cell.reference("one") for cell in result] + weighted + result
    if strategy == "mirrored":
        result = [cell.reference("one") for cell in result if cell.kind == "losses"] + result
    return list(dict.fromkeys(result))


# ---- One cell. TensorFlow is imported from here on.


def objects(kind):
    """Makers of the objects of a kind, by name."""
    from rank4class_tf import optimizers
    from tests.contract import head_table, tables

    rows = {
        "losses": lambda: {case.name: case.make for case in tables.LOSSES},
        "metrics": lambda: {case.name: case.make for case in tables.METRICS},
        "heads": lambda: head_table.HEADS,
        "sorters": lambda: {case.name: case.make for case in tables.SORTERS},
        "models": lambda: {
            f"extreme_classifier_{name}": getattr(optimizers, name)
            for name in ("RowwiseSGD", "RowwiseAdagrad", "RowwiseAdam")
        },
    }
    return rows[kind]()


def draw_apart(cell):
    """Names of the objects of a cell that draw different numbers on each replica."""
    from tests.contract import tables

    if cell.kind == "models" and cell.labels != "ids":
        return set(objects("models"))  # These draw one of the classes of an example.
    return {case.name for case in tables.LOSSES if case.random} | {"dropout"}


def names_of(cell):
    """Names of the objects of a cell."""
    from tests.contract import tables

    names = list(objects(cell.kind))
    few = FEW.get(cell.kind, tables.REPRESENTATIVES)
    return [name for name in names if name in few] if cell.few and cell.kind != "models" else names


def batches(cell):
    """A dataset of features and labels, and weights if the cell has them."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(7)
    count = EXAMPLES[cell.data]
    features = rng.normal(size=(8, 4 if cell.kind == "heads" else FEATURES)).astype(np.float32)
    classes = 5 if cell.kind == "heads" else CLASSES
    padded = np.stack([rng.choice(classes, 2, replace=False) for _ in range(8)])
    padded[::3, 1] = -1
    features, padded = features[:count], padded[:count]
    relevance = np.zeros([count, classes], np.float32)
    for row, ids in enumerate(padded):
        relevance[row, ids[ids >= 0]] = 1
    labels = {
        "ids": padded[:, 0],
        "padded": padded,
        "ragged": tf.RaggedTensor.from_tensor(padded, padding=-1),
        "relevance": relevance,
        "numbers": rng.normal(size=(count, 100)).astype(np.float32),
    }[cell.labels]
    data = [features, labels]
    if cell.weighted:
        # Two replicas share a batch of m, and each takes the mean of its part. In the mean over
        # the batch an example of a part of size p therefore has the weight m / (2 p).
        weights = np.ones(count, np.float32)
        last = count % BATCH
        first = min(last, BATCH // 2)
        weights[-last:] = [last / 2 / (first if i < first else last - first) for i in range(last)]
        data.append(weights)
    return tf.data.Dataset.from_tensor_slices(tuple(data)).batch(BATCH)


def compiled(cell, names):
    """A model with an output for each object and for the control, under the current strategy."""
    import tensorflow as tf
    from tensorflow import keras

    from rank4class_tf import losses, metrics, models

    class Control(keras.losses.Loss):
        """A loss of Keras that reads no labels, so they may have any form."""

        def call(self, y_true, y_pred):
            del y_true
            return tf.reduce_mean(tf.square(y_pred), axis=-1)

    arguments = {
        "run_eagerly": cell.mode == "eager",
        "jit_compile": cell.mode == "xla",
        "steps_per_execution": 2 if cell.mode == "two_steps" else 1,
    }
    makers = objects(cell.kind)

    def scaled(optimizer):
        """Replaces Keras's first scale of 2**15 in float16, with which early steps overflow."""
        if cell.precision != "mixed_float16":
            return optimizer
        of_keras_3 = getattr(keras.optimizers, "LossScaleOptimizer", None)
        make = of_keras_3 or keras.mixed_precision.LossScaleOptimizer
        return make(optimizer, initial_scale=128)

    if cell.kind == "models":
        (name,) = names
        encoder = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(4)])
        if name == CONTROL:
            encoder.compile(scaled(keras.optimizers.SGD()), Control(), **arguments)
            return encoder
        model = models.ExtremeClassifier(encoder, 40, 4, num_sampled=12, seed=3)
        # With a smaller epsilon, a gradient near 0, which is only rounding, moves as far as others.
        options = {} if name == "extreme_classifier_RowwiseSGD" else {"epsilon": 1e-2}
        model.compile(
            scaled(makers[name](0.1, **options)),
            losses.SoftmaxLoss(),
            metrics=[metrics.PrecisionAtK([1, 3]), metrics.NDCG(5)],
            **arguments,
        )
        return model
    inputs = keras.Input((4 if cell.kind == "heads" else FEATURES,))
    outputs, of_outputs = [], []
    for name in names:
        if name == CONTROL:
            outputs.append(keras.layers.Dense(3, name=name)(inputs))
            of_outputs.append(Control(name=name))
        elif cell.kind == "losses":
            outputs.append(keras.layers.Dense(CLASSES, name=name)(inputs))
            of_outputs.append(makers[name]())
        elif cell.kind == "heads":
            outputs.append(makers[name](name=name)(inputs))
            of_outputs.append(losses.SoftmaxLoss())
        elif cell.kind == "sorters":
            outputs.append(keras.layers.Dense(100, name=name)(inputs))
            of_outputs.append(losses.SpearmanLoss(makers[name](), axis="items"))
    of_metrics = None
    if cell.kind == "metrics":
        outputs, of_outputs = keras.layers.Dense(CLASSES)(inputs), Control()
        of_metrics = [makers[name](name=name) for name in names if name != CONTROL]
    model = keras.Model(inputs, outputs)
    model.compile(scaled(keras.optimizers.SGD(0.1)), of_outputs, metrics=of_metrics, **arguments)
    return model


def train(cell, names, strategy):
    """Trains and evaluates; returns weights before and after, and values, of each object."""
    import numpy as np
    from tensorflow import keras

    keras.backend.clear_session()
    keras.mixed_precision.set_global_policy(cell.precision)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = compiled(cell, names)
    parallel = not isinstance(model, keras.Sequential) and cell.kind not in ("models", "metrics")
    count = len(names) if parallel else None

    def for_outputs(features, labels, *weights):
        return (features, (labels,) * count if count else labels, *weights)

    data = batches(cell).map(for_outputs)
    steps = len(data)
    before = weights_of(model, names)
    by_server = type(strategy).__name__.startswith("ParameterServer")
    if by_server:  # A parameter server needs it.
        model.fit(data.repeat(), epochs=2, steps_per_epoch=steps, shuffle=False, verbose=0)
    else:
        model.fit(data, epochs=2, shuffle=False, verbose=0)
    after = weights_of(model, names)
    values = {}
    # For uneven batches, Keras reports the mean of the replicas' means as the loss.
    evaluated = "uneven" if cell.kind == "metrics" else "even"
    plain = batches(dataclasses.replace(cell, data=evaluated, weighted=False)).map(for_outputs)
    more = {"steps": len(plain)} if by_server else {}
    if cell.is_plain or not parallel:
        values = model.evaluate(plain, verbose=0, return_dict=True, **more)
    result = {}
    for name in names:
        if cell.kind == "metrics" and name != CONTROL:
            own = {"value": values[name]}
        elif parallel:
            key = f"{name}_loss" if len(names) > 1 else "loss"
            own = {"loss": values[key]} if values else {}
        else:
            own = values
        result[name] = {
            "before": before[name],
            "after": after[name],
            "values": {key: float(np.asarray(value)) for key, value in own.items()},
        }
    return result


def weights_of(model, names):
    """The trainable weights of each object, in one list."""
    import numpy as np

    by_name = {layer.name: layer for layer in model.layers}

    def numbers(variables):
        arrays = [np.asarray(v.numpy() if hasattr(v, "numpy") else v) for v in variables]
        return np.concatenate([a.ravel() for a in arrays]).astype(float).tolist()

    return {name: numbers((by_name.get(name) or model).trainable_variables) for name in names}


def run_cell(cell, strategy):
    """The results of all objects of a cell; an error where one fails."""
    names = names_of(cell)
    if cell.kind == "models":
        groups = [[CONTROL], *([name] for name in names)]
    else:
        groups = [[*names, CONTROL]]
    results = {}

    def attempt(group):
        try:
            results.update(train(cell, group, strategy))
        except Exception as error:  # The table shows errors of any kind.
            failure = {"error": f"{type(error).__name__}: {error}"[:500]}
            if len(group) == 1 or group[0] in results:
                results.update({name: failure for name in group})
                return
            if CONTROL in group:
                attempt([CONTROL])
                if "error" in results[CONTROL]:
                    results.update({name: results[CONTROL] for name in group})
                    return
                group = [name for name in group if name != CONTROL]
            half = (len(group) + 1) // 2
            attempt(group[:half])
            if group[half:]:
                attempt(group[half:])

    for group in groups:
        if "error" in results.get(CONTROL, {}):
            results.update({name: results[CONTROL] for name in group})
        else:
            attempt(group)
    return results


def make_strategy(name):
    """A strategy on this machine, in a process that the environment set up for it."""
    import tensorflow as tf

    if name == "one":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        # TensorFlow mixes up the collectives of several strategies in one process.
        reduction = tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=reduction)
    if name == "multi_worker":
        return tf.distribute.MultiWorkerMirroredStrategy()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver)


def two_devices():
    """Two logical devices of the processor."""
    import tensorflow as tf

    device = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(device, devices)


def child(strategy_name, folder, names):
    """Runs cells, by their names, and writes their results."""
    import tensorflow as tf

    from rank4class_tf import _files

    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
    if strategy_name == "mirrored":
        two_devices()
    if strategy_name == "parameter_server" and task["type"] != "chief":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=task["type"], task_index=0, protocol="grpc"
        )
        server.join()
    strategy = make_strategy(strategy_name)
    for name in names:
        results = run_cell(Cell.of_name(name), strategy)
        if task.get("index", 0) == 0:
            _files.write_text(folder / f"{name}.json", json.dumps(results))


# ---- All cells. TensorFlow is imported only to write a file.


def write_text(path, text):
    """Writes a file of the process that starts the others."""
    from rank4class_tf import _files

    _files.write_text(path, text)


def free_ports(count):
    """Ports of this machine that are free."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start(keras, strategy, folder, names):
    """Starts the processes that run cells; the first one writes the results."""
    tasks = {
        "multi_worker": [("worker", 0), ("worker", 1)],
        "parameter_server": [("chief", 0), ("ps", 0), ("worker", 0)],
    }.get(strategy, [None])
    cluster = {}
    for task, port in zip(tasks, free_ports(len(tasks)), strict=True):
        if task:
            cluster.setdefault(task[0], []).append(f"localhost:{port}")
    processes = []
    for task in tasks:
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_USE_LEGACY_KERAS": KERAS[keras] or "0",
            "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[2]),
        }
        if task:
            environment["TF_NUM_INTEROP_THREADS"] = "4"  # Processes wait for each other.
            environment["TF_CONFIG"] = json.dumps(
                {"cluster": cluster, "task": {"type": task[0], "index": task[1]}}
            )
        command = [
            sys.executable,
            "-m",
            __spec__.name,
            "--child",
            strategy,
            "--folder",
            str(folder),
        ]
        with open(folder / f"{'-'.join(map(str, task or ['log']))}.txt", "a") as log:
            processes.append(
                subprocess.Popen(
                    [*command, "--cells", *names],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
    return processes


def run(keras, strategy, folder, time_limit, listed):
    """Runs the cells that do not have results yet."""
    folder.mkdir(parents=True, exist_ok=True)

    def missing():
        return [cell.name for cell in listed if not (folder / f"{cell.name}.json").exists()]

    while names := missing():
        processes = start(keras, strategy, folder, names)
        changed, left = time.monotonic(), len(names)
        while processes[0].poll() is None and time.monotonic() - changed < time_limit:
            time.sleep(1)
            if len(missing()) < left:
                changed, left = time.monotonic(), len(missing())
        late = processes[0].poll() is None
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if missing() and missing()[0] in names:  # This cell was being run.
            reason = f"no result in {time_limit} s" if late else "the process died"
            # Without a result, we cannot know whether plain Keras would have worked.
            results = {"all objects": {"error": reason}}
            write_text(folder / f"{missing()[0]}.json", json.dumps(results))


def load(folder, keras, strategy, cell):
    """Results of a cell; None if it has not run."""
    path = folder / f"keras{keras}" / strategy / f"{cell.name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def distance(ours, theirs):
    """The distance of results: of weights, relative to what training changed; and of values."""
    if "error" in ours:
        return ours["error"]
    before, after, expected = (
        np.array(x) for x in (theirs["before"], ours["after"], theirs["after"])
    )
    changed = np.max(np.abs(expected - before))
    distances = [np.max(np.abs(after - expected)) / max(changed, 1e-6)]
    for key, value in ours["values"].items():
        expected = theirs["values"][key]
        distances.append(abs(value - expected) / max(abs(expected), 0.1))
    worst = float(np.max(distances))  # It is NaN if one value is, unlike Python's.
    return float("inf") if np.isnan(worst) else worst


def compare(folder, keras, strategy, cell):
    """The text of a cell, and lines on objects that fail or differ."""
    results = load(folder, keras, strategy, cell)
    if results is None:
        return "", []
    if "error" in results.get(CONTROL, {}):
        return "Keras", [results[CONTROL]["error"]]
    reference = load(folder, keras, "one", cell.reference(strategy)) or {}
    by_mirrored = load(folder, keras, "mirrored", cell.reference("one")) or {}
    apart = draw_apart(cell)
    replicas = strategy in ("mirrored", "multi_worker")
    limit = TOLERANCES[cell.precision]
    distances, lines = {}, []
    for name, result in results.items():
        drawn = replicas and name in apart
        expected = (by_mirrored if drawn else reference).get(name)
        itself = cell.is_plain and strategy == ("mirrored" if drawn else "one")
        if "error" in result:
            distances[name] = result["error"]
        elif expected is not None and "error" not in expected and not itself:
            distances[name] = distance(result, expected)
    equal = [d for d in distances.values() if not isinstance(d, str) and d <= limit]
    for name, d in distances.items():
        if isinstance(d, str) or d > limit:
            lines.append(f"`{name}`: {d if isinstance(d, str) else f'{d:.1e}'}")
    if not distances:
        return "trains", []  # A reference, with nothing to compare with.
    text = f"{len(equal)}/{len(distances)}"
    return f"{text} ({max(equal):.0e})" if equal else text, lines


def heading(cell):
    """The heading of a cell's column."""
    if cell.mode == "two_steps":
        return "2 steps at once"
    if cell.data == "one_left":
        return "last batch 1 + 0"
    return f"{cell.labels}, {cell.mode}, {cell.precision.removeprefix('mixed_')}"


def table(folder):
    """The tables of all cells that have run."""
    text, notes = [INTRODUCTION.strip()], {}
    for kind in LABELS:
        cells_of_row = row(kind)
        lines_of_table = []
        for keras, strategy in itertools.product(KERAS, STRATEGIES):
            shown = []
            for cell in cells_of_row:
                entry, lines = compare(folder, keras, strategy, cell)
                shown.append(entry)
                for line in lines:
                    where = f"Keras {keras}, {strategy}: {kind}, {heading(cell)}"
                    notes.setdefault(line.splitlines()[0][:200], []).append(where)
            if any(shown):
                lines_of_table.append([keras, strategy, *shown])
        head = ["Keras", "strategy", *map(heading, cells_of_row)]
        text += ["", f"## {kind.capitalize()}", ""]
        text += tables.table(head, lines_of_table, len(cells_of_row))
    text += ["", "## What fails or differs", "", FAILURES, ""]
    text += [f"- {line} ({'; '.join(where)})" for line, where in notes.items()]
    return "\n".join(text) + "\n"


def main():
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, default="strategy_matrix")
    parser.add_argument("--keras", nargs="+", choices=KERAS, default=list(KERAS))
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument(
        "--time-limit", type=int, default=600, help="time limit per cell in seconds"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, help="file for the table; without it the table is printed"
    )
    parser.add_argument("--child", choices=STRATEGIES, help=argparse.SUPPRESS)
    parser.add_argument("--cells", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.folder, args.cells)
        return
    for keras, strategy in itertools.product(args.keras, args.strategies):
        listed = cells(strategy)
        run(keras, strategy, args.folder / f"keras{keras}" / strategy, args.time_limit, listed)
    text = table(args.folder)
    if args.out:
        write_text(args.out, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
