"""Trains every loss, head, metric, sorter and model by strategy, mode and precision.

    python -m scripts.robustness.strategies --folder out/strategies

Each cell of the tables trains small models with Keras's `fit` and `evaluate`, under
Keras 3 or Keras 2. A model has an output for each object of the contract tests' tables
(`tests/contract`). It is compared with the same models on one device, in graph mode, in
float32: the weights, relative to the change that training made, and the losses and
metrics of `evaluate`.

The last batch has three examples, which is uneven for two replicas (2 + 1). Keras takes
the mean of the replicas' means, so the comparison gives the examples these weights.
Another cell has a last batch of one example (1 + 0). Each cell also has a loss of
Keras, which reads no labels. If that fails or differs too, the objects are not the
cause, and the table says so. Random objects draw different numbers on each replica;
they are compared with `MirroredStrategy` in graph mode.

Each strategy gets all objects in graph mode in float32. Every other mode, precision and
form of labels gets a few objects of each kind, one for each path through the code that
they share. The kind `shards` has losses over classes in shards, compared with a table
of classes on one device. The results of a cell are a JSON file in the folder; a cell
with such a file is not run again.

Everything takes two hours. `--quick` trains shards on one device and on two, in Keras
3.
"""

import argparse
import dataclasses
import faulthandler
import functools
import itertools
import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import NamedTuple

import numpy as np

from scripts import command_line, tables

STRATEGIES = ("one", "mirrored", "multi_worker", "parameter_server")
LABELS = {
    "losses": ("ids", "padded", "ragged", "relevance"),
    "metrics": ("ids", "padded", "ragged", "relevance"),
    "heads": ("ids",),
    "sorters": ("numbers",),
    "models": ("ids", "padded", "ragged"),
    "shards": ("ids",),
}
# Objects that stand for the others; for losses and metrics, the tables name them.
FEW = {
    "heads": {"dot_product", "latent_cross", "encoded_array"},
    "sorters": {"laplace", "set"},
}
# Tolerances for weights, relative to what training changed, and for values of
# `evaluate`.
TOLERANCES = {"float32": 1e-4, "mixed_bfloat16": 1e-1, "mixed_float16": 2e-2}
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
        data: a key of `EXAMPLES`. XLA gets `even`, since it compiles anew for each
            batch size.
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
    def heading(self):
        """The heading of the cell's column."""
        if self.mode == "two_steps":
            return "2 steps at once"
        if self.data == "one_left":
            return "last batch 1 + 0"
        return f"{self.labels}, {self.mode}, {self.precision.removeprefix('mixed_')}"

    @property
    def is_plain(self):
        """Whether the cell is in graph mode and in float32."""
        return (self.mode, self.precision) == ("graph", "float32")

    @property
    def is_single(self):
        """Whether each object has a model of its own."""
        return self.kind in ("models", "shards")

    @property
    def has_outputs(self):
        """Whether each object has an output of a model that all share."""
        return self.kind in ("losses", "heads", "sorters")

    def reference(self, strategy):
        """The cell on one device that this one should equal under a strategy.

        It has as many objects, since the initial weights of each depend on the objects
        before it.
        """
        weighted = strategy in ("mirrored", "multi_worker") and self.data != "even"
        return dataclasses.replace(
            self, mode="graph", precision="float32", weighted=weighted
        )

    def path(self, folder, keras, strategy):
        """The file of the cell's results."""
        name = "-".join(map(str, dataclasses.astuple(self)))
        return folder / f"keras{keras}" / strategy / f"{name}.json"


def row(kind):
    """The cells of a kind under a strategy, in the order of the table."""
    first, *forms = LABELS[kind]
    if kind == "shards":
        return [Cell(kind, first, data="even")]
    result = [Cell(kind, first), *(Cell(kind, form, few=True) for form in forms)]
    result += [Cell(kind, first, precision=p, few=True) for p in list(TOLERANCES)[1:]]
    result.append(Cell(kind, first, "eager", few=True))
    result.append(Cell(kind, first, "xla", data="even", few=True))
    if kind == "losses":
        result.append(Cell(kind, "ids", "two_steps", data="even", few=True))
        result.append(Cell(kind, "ids", data="one_left", few=True))
    return result


def cells(strategy, kinds=tuple(LABELS)):
    """The cells of a strategy, the reference cells first."""
    result = [cell for kind in kinds for cell in row(kind)]
    if strategy == "one":
        references = [cell.reference("one") for cell in result]
        weighted = [cell.reference("mirrored") for cell in result]
        result = [*references, *weighted, *result]
    if strategy == "mirrored":
        of_losses = [cell for cell in result if cell.kind == "losses"]
        result = [*(cell.reference("one") for cell in of_losses), *result]
    if strategy == "parameter_server":
        result = [cell for cell in result if cell.kind != "shards"]
    return list(dict.fromkeys(result))


# The objects of a cell, and its data. TensorFlow is imported from here on.


def objects(kind):
    """Makers of the objects of a kind, by name."""
    from rank4class_tf import losses, ops, optimizers
    from tests.contract import head_table
    from tests.contract import tables as contract

    if kind == "heads":
        return head_table.HEADS
    if kind == "models":
        names = ("RowwiseSGD", "RowwiseAdagrad", "RowwiseAdam")
        return {
            f"extreme_classifier_{name}": getattr(optimizers, name) for name in names
        }
    if kind == "shards":
        return {
            "softmax": lambda: losses.SoftmaxLoss(0.5),
            "rankmax": losses.RankmaxLoss,
            "top_3": lambda: losses.OrderedWeightedLoss(
                "binary", "hinge", ops.TopKWeights(3)
            ),
            "approx_ndcg": losses.ApproxNDCGLoss,
        }
    rows = {
        "losses": contract.LOSSES,
        "metrics": contract.METRICS,
        "sorters": contract.SORTERS,
    }
    return {case.name: case.make for case in rows[kind]}


def draw_apart(cell):
    """Names of the objects of a cell that draw different numbers on each replica."""
    from tests.contract import tables as contract

    if cell.kind == "models" and cell.labels != "ids":
        return set(objects("models"))  # These draw one of the classes of an example.
    return {case.name for case in contract.LOSSES if case.random} | {"dropout"}


def names_of(cell):
    """Names of the objects of a cell."""
    from tests.contract import tables as contract

    few = FEW.get(cell.kind, contract.REPRESENTATIVES)
    names = list(objects(cell.kind))
    if not cell.few or cell.is_single:
        return names
    return [name for name in names if name in few]


def batches(cell):
    """A dataset of features and labels, and weights if the cell has them."""
    import tensorflow as tf

    rng = np.random.default_rng(7)
    count = EXAMPLES[cell.data]
    of_heads = cell.kind == "heads"
    features = rng.normal(size=(8, 4 if of_heads else FEATURES)).astype(np.float32)
    labels = labels_of(cell.labels, count, 5 if of_heads else CLASSES, rng)
    data = [features[:count], labels]
    if cell.weighted:
        data.append(weights_of_replicas(count))
    return tf.data.Dataset.from_tensor_slices(tuple(data)).batch(BATCH)


def labels_of(form, count, classes, rng):
    """Labels of one or two classes in a form, or random numbers."""
    import tensorflow as tf

    padded = np.stack([rng.choice(classes, 2, replace=False) for _ in range(8)])
    padded[::3, 1] = -1
    padded = padded[:count]
    if form == "ids":
        return padded[:, 0]
    if form == "ragged":
        return tf.RaggedTensor.from_tensor(padded, padding=-1)
    if form == "relevance":
        relevance = np.zeros([count, classes], np.float32)
        for of_example, ids in zip(relevance, padded, strict=True):
            of_example[ids[ids >= 0]] = 1
        return relevance
    if form == "numbers":
        return rng.normal(size=(count, 100)).astype(np.float32)
    return padded


def weights_of_replicas(count):
    """The weights that two replicas give so many examples.

    They share a batch of m, and each takes the mean of its part. In the mean over the
    batch an example of a part of size p therefore has the weight m / (2 p).
    """
    weights = np.ones(count, np.float32)
    last = count % BATCH
    first = min(last, BATCH // 2)
    sizes = [first] * first + [last - first] * (last - first)
    weights[count - last :] = [last / 2 / size for size in sizes]
    return weights


def control(**options):
    """A loss of Keras that reads no labels, so they may have any form."""
    import tensorflow as tf
    from tensorflow import keras

    class Control(keras.losses.Loss):
        def call(self, y_true, y_pred):
            del y_true
            return tf.reduce_mean(tf.square(y_pred), axis=-1)

    return Control(**options)


# The models of a cell.


def make_encoder():
    """What the single models and their control train."""
    from tensorflow import keras

    return keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(4)])


def single(cell, encoder, classes, num_sampled, optimizer, loss):
    """A model that one object is tried with."""
    from rank4class_tf import metrics, models

    model = models.ExtremeClassifier(
        encoder, classes, 4, num_sampled=num_sampled, seed=3
    )
    measured = [metrics.PrecisionAtK([1, 3]), metrics.NDCG(5)]
    return compiled_for(cell, model, optimizer, loss, measured)


def with_rowwise_optimizer(cell, names):
    """A model whose optimizer is the object."""
    from rank4class_tf import losses

    (name,) = names
    # With a smaller epsilon, a gradient that is only rounding moves as far as others.
    options = {} if name.endswith("SGD") else {"epsilon": 1e-2}
    optimizer = objects(cell.kind)[name](0.1, **options)
    return single(cell, make_encoder(), 40, 12, optimizer, losses.SoftmaxLoss())


def with_shards(cell, names):
    """A model whose loss is the object, with a shard of the classes on each replica."""
    import tensorflow as tf

    from rank4class_tf import layers, optimizers

    (name,) = names
    encoder = make_encoder()
    optimizer = optimizers.RowwiseAdagrad(0.03)
    classes = layers.ShardedClassTable(40, 4, optimizers.RowwiseAdagrad(0.03), seed=1)
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        classes.build((None, 4))
        classes = layers.ClassTable.from_rows(classes.rows())
    loss = objects(cell.kind)[name]()
    return single(cell, encoder, classes, None, optimizer, loss)


def with_metrics(cell, names):
    """A model with the loss of the control, whose scores all metrics measure."""
    from tensorflow import keras

    makers = objects(cell.kind)
    measured = [makers[name](name=name) for name in names if name != CONTROL]
    inputs = keras.Input((FEATURES,))
    model = keras.Model(inputs, keras.layers.Dense(CLASSES)(inputs))
    return compiled_for(cell, model, keras.optimizers.SGD(0.1), control(), measured)


def with_outputs(cell, names):
    """A model with an output for each object and for the control."""
    from tensorflow import keras

    inputs = keras.Input((4 if cell.kind == "heads" else FEATURES,))
    outputs = []
    of_outputs = []
    for name in names:
        output, loss = output_of(cell.kind, name, inputs)
        outputs.append(output)
        of_outputs.append(loss)
    optimizer = keras.optimizers.SGD(0.1)
    return compiled_for(cell, keras.Model(inputs, outputs), optimizer, of_outputs)


def output_of(kind, name, inputs):
    """The output of an object, and the loss of this output."""
    from tensorflow import keras

    from rank4class_tf import losses

    dense = functools.partial(keras.layers.Dense, name=name)
    if name == CONTROL:
        return dense(3)(inputs), control(name=name)
    make = objects(kind)[name]
    if kind == "heads":
        return make(name=name)(inputs), losses.SoftmaxLoss()
    if kind == "sorters":
        return dense(100)(inputs), losses.SpearmanLoss(make(), axis="items")
    return dense(CLASSES)(inputs), make()


# The other kinds have an output for each object.
BUILDERS = {
    "metrics": with_metrics,
    "models": with_rowwise_optimizer,
    "shards": with_shards,
}


def compiled(cell, names):
    """A model of objects and the control, under the current strategy."""
    from tensorflow import keras

    if cell.is_single and names == [CONTROL]:
        return compiled_for(cell, make_encoder(), keras.optimizers.SGD(), control())
    return BUILDERS.get(cell.kind, with_outputs)(cell, names)


def compiled_for(cell, model, optimizer, loss, metrics=None):
    """Compiles a model for the mode and the precision of a cell; returns it."""
    from tensorflow import keras

    if cell.precision == "mixed_float16":
        # Early steps overflow with Keras's first scale of 2**15.
        of_keras_3 = getattr(keras.optimizers, "LossScaleOptimizer", None)
        make = of_keras_3 or keras.mixed_precision.LossScaleOptimizer
        optimizer = make(optimizer, initial_scale=128)
    model.compile(
        optimizer,
        loss,
        metrics=metrics,
        run_eagerly=cell.mode == "eager",
        jit_compile=cell.mode == "xla",
        steps_per_execution=2 if cell.mode == "two_steps" else 1,
    )
    return model


# The training of a cell.


def weights_of(model, name):
    """The trainable weights of an object, in one list."""
    rows = []
    if hasattr(model, "classes"):
        own = model.encoder
        rows.append(model.classes.rows())
    else:
        own = {layer.name: layer for layer in model.layers}.get(name, model)
    variables = [*own.trainable_variables, *rows]
    arrays = [np.asarray(v.numpy() if hasattr(v, "numpy") else v) for v in variables]
    return np.concatenate([array.ravel() for array in arrays]).astype(float).tolist()


def train(cell, names, strategy):
    """Trains and evaluates; returns objects' weights before and after, and values."""
    from tensorflow import keras

    keras.mixed_precision.set_global_policy(cell.precision)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = compiled(cell, names)

    before = {name: weights_of(model, name) for name in names}
    data, steps = data_for(strategy, cell, names)
    model.fit(data, epochs=2, steps_per_epoch=steps, shuffle=False, verbose=0)
    after = {name: weights_of(model, name) for name in names}
    values = evaluated(model, cell, names, strategy)
    return {
        name: {"before": before[name], "after": after[name], "values": values[name]}
        for name in names
    }


def data_for(strategy, cell, names):
    """The batches of a cell, and how many; only a parameter server needs that."""
    data = batches(cell)
    if cell.has_outputs:

        def repeated(features, labels, *weights):
            return features, (labels,) * len(names), *weights

        data = data.map(repeated)  # All outputs have the same labels.
    if type(strategy).__name__.startswith("ParameterServer"):
        return data.repeat(), len(data)
    return data, None


def evaluated(model, cell, names, strategy):
    """The values of an evaluation, by object; of outputs only in a plain cell."""
    if cell.has_outputs and not cell.is_plain:
        return {name: {} for name in names}
    # For uneven batches, Keras reports the mean of the replicas' means as the loss.
    examples = "uneven" if cell.kind == "metrics" else "even"
    unweighted = dataclasses.replace(cell, data=examples, weighted=False)
    data, steps = data_for(strategy, unweighted, names)
    values = model.evaluate(data, steps=steps, verbose=0, return_dict=True)
    return {name: values_of(cell, name, names, values) for name in names}


def values_of(cell, name, names, values):
    """The values of an evaluation that belong to an object."""
    if cell.kind == "metrics" and name != CONTROL:
        values = {"value": values[name]}
    elif cell.has_outputs:
        values = {"loss": values[f"{name}_loss" if len(names) > 1 else "loss"]}
    return {key: float(np.asarray(value)) for key, value in values.items()}


def run_cell(cell, strategy):
    """The results of all objects of a cell; an error where one fails."""
    from tensorflow import keras

    names = names_of(cell)
    results = {}

    def attempt(group):
        keras.backend.clear_session()
        try:
            results.update(train(cell, group, strategy))
        except Exception as error:  # The table shows errors of any kind.
            failure = {"error": f"{type(error).__name__}: {error}"[:500]}
            if len(group) == 1:
                results[group[0]] = failure
                return
            half = (len(group) + 1) // 2
            attempt(group[:half])
            attempt(group[half:])

    attempt([CONTROL])
    if "error" in results[CONTROL]:
        return {name: results[CONTROL] for name in [*names, CONTROL]}
    if cell.is_single:
        for name in names:
            attempt([name])
    else:
        attempt([*names, CONTROL])
    return results


# The processes of a strategy.


def start(settings):
    """Starts the processes that run a strategy's cells; the first writes results."""
    tasks = {
        "multi_worker": [("worker", 0), ("worker", 1)],
        "parameter_server": [("chief", 0), ("ps", 0), ("worker", 0)],
    }.get(settings["strategy"], [None])
    cluster = {}
    free = [socket.create_server(("localhost", 0)) for _ in tasks]
    for task, server in zip(tasks, free, strict=True):
        if task:
            address = f"localhost:{server.getsockname()[1]}"
            cluster.setdefault(task[0], []).append(address)
        server.close()
    command = [sys.executable, "-m", __spec__.name, "--child", json.dumps(settings)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["TF_USE_LEGACY_KERAS"] = "1" if settings["keras"] == "2" else "0"
    processes = []
    for task in tasks:
        if task:
            config = {"cluster": cluster, "task": {"type": task[0], "index": task[1]}}
            environment |= {"TF_CONFIG": json.dumps(config)}
            # Processes wait for each other.
            environment["TF_NUM_INTEROP_THREADS"] = "4"
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        processes.append(process)
    return processes


def run(keras, strategy, folder, time_limit, kinds):
    """Runs cells that have no results yet; one that ends its process gets an error."""
    paths = [cell.path(folder, keras, strategy) for cell in cells(strategy, kinds)]
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    settings = {"keras": keras, "strategy": strategy, "folder": str(folder)}
    while not all(path.exists() for path in paths):
        processes = start(settings | {"time_limit": time_limit, "kinds": kinds})
        processes[0].wait()
        for process in processes[1:]:
            process.kill()
            process.wait()
        if missing := [path for path in paths if not path.exists()]:
            # Without a result, we cannot know whether plain Keras would have worked.
            reason = f"the process died, or took more than {time_limit} s"
            missing[0].write_text(json.dumps({"all objects": {"error": reason}}))


def child(keras, strategy, folder, time_limit, kinds):
    """Runs cells of a strategy that have no results yet, and writes their results."""
    made = make_strategy(strategy)
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
    folder = pathlib.Path(folder)
    chosen = cells(strategy, kinds)
    paths = {cell: cell.path(folder, keras, strategy) for cell in chosen}
    missing = [cell for cell, path in paths.items() if not path.exists()]
    for cell in missing:
        faulthandler.dump_traceback_later(time_limit, exit=True)
        text = json.dumps(run_cell(cell, made))
        if not task.get("index", 0):
            paths[cell].write_text(text)
    faulthandler.cancel_dump_traceback_later()


def make_strategy(name):
    """A strategy on this machine, in a process that the environment set up for it."""
    import tensorflow as tf

    if name == "one":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        device = tf.config.list_physical_devices("CPU")[0]
        devices = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(device, devices)
        # TensorFlow mixes up the collectives of several strategies in one process.
        reduction = tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(
            ["CPU:0", "CPU:1"], cross_device_ops=reduction
        )
    if name == "multi_worker":
        return tf.distribute.MultiWorkerMirroredStrategy()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        task = {"job_name": resolver.task_type, "task_index": 0, "protocol": "grpc"}
        tf.distribute.Server(resolver.cluster_spec(), **task).join()
    return tf.distribute.ParameterServerStrategy(resolver)


# Comparison with the references.


def distance(ours, theirs):
    """The distance of results: of weights, relative to their change, and of values."""
    if "error" in ours:
        return ours["error"]
    before = np.array(theirs["before"])
    after = np.array(ours["after"])
    expected = np.array(theirs["after"])
    changed = np.max(np.abs(expected - before))
    distances = [np.max(np.abs(after - expected)) / max(changed, 1e-6)]
    for key, value in ours["values"].items():
        expected = theirs["values"][key]
        distances.append(abs(value - expected) / max(abs(expected), 0.1))
    worst = float(np.max(distances))  # It is NaN if one value is, unlike Python's.
    return float("inf") if np.isnan(worst) else worst


class Comparison(NamedTuple):
    """The text of a cell, and lines on objects that fail or differ."""

    text: str
    lines: list[str]


def load(folder, keras, strategy, cell):
    """The results of a cell by object; none if it did not run."""
    path = cell.path(folder, keras, strategy)
    return json.loads(path.read_text()) if path.exists() else {}


def distances_of(folder, keras, strategy, cell):
    """How far each object is from its reference, or its error."""
    reference = load(folder, keras, "one", cell.reference(strategy))
    by_mirrored = load(folder, keras, "mirrored", cell.reference("one"))
    apart = draw_apart(cell)
    distances = {}
    for name, result in load(folder, keras, strategy, cell).items():
        drawn = strategy in ("mirrored", "multi_worker") and name in apart
        expected = (by_mirrored if drawn else reference).get(name, {"error": ""})
        itself = cell.is_plain and strategy == ("mirrored" if drawn else "one")
        if "error" in result:
            distances[name] = result["error"]
        elif "error" not in expected and not itself:
            distances[name] = distance(result, expected)
    return distances


def compare(folder, keras, strategy, cell):
    """Compares a cell with its reference."""
    results = load(folder, keras, strategy, cell)
    if not results:
        return Comparison("", [])
    if "error" in results.get(CONTROL, {}):
        return Comparison("Keras", [results[CONTROL]["error"]])
    distances = distances_of(folder, keras, strategy, cell)
    if not distances:  # A reference, with nothing to compare with.
        return Comparison("trains", [])
    equal = []
    lines = []
    for name, found in distances.items():
        if isinstance(found, str):
            lines.append(f"`{name}`: {found}")
        elif found > TOLERANCES[cell.precision]:
            lines.append(f"`{name}`: {found:.1e}")
        else:
            equal.append(found)
    text = f"{len(equal)}/{len(distances)}"
    return Comparison(f"{text} ({max(equal):.0e})" if equal else text, lines)


def show(folder, kinds, path=None):
    """Prints tables of the cells that ran, and what fails; writes entries as CSV."""
    notes = {}
    entries = []
    for kind in kinds:
        rows = []
        for keras, strategy in itertools.product("32", STRATEGIES):
            shown = []
            for cell in row(kind):
                entry, lines = compare(folder, keras, strategy, cell)
                shown.append(entry)
                entries.append([kind, keras, strategy, cell.heading, entry])
                for line in lines:
                    where = f"Keras {keras}, {strategy}: {kind}, {cell.heading}"
                    notes.setdefault(line.splitlines()[0][:200], []).append(where)
            if any(shown):
                rows.append([keras, strategy, *shown])
        print(f"\n## {kind.capitalize()}\n")
        head = ["Keras", "strategy", *(cell.heading for cell in row(kind))]
        tables.show(head, rows, len(head) - 2)
    print("\n## What fails or differs\n")
    print("\n".join(f"- {line} ({'; '.join(where)})" for line, where in notes.items()))
    if path:
        tables.write_csv(path, ["kind", "Keras", "strategy", "cell", "result"], entries)


def main(argv=None):
    """Runs the cells and prints the tables."""
    quick = {"keras": ["3"], "strategies": ["one", "mirrored"], "kinds": ["shards"]}
    parser = command_line.Parser(__spec__, __doc__, quick)
    add = parser.add_value
    path = pathlib.Path
    add("--folder", path, path("out/strategies"), "folder of the cells")
    parser.add_names("--keras", "32", "versions of Keras")
    parser.add_names("--strategies", STRATEGIES, "strategies")
    parser.add_names("--kinds", LABELS, "kinds of objects")
    add("--time-limit", int, 600, "seconds per cell")
    add("--csv", path, None, "a file for all entries")
    add("--child", json.loads, None, argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        child(**args.child)
        return
    for keras, strategy in itertools.product(args.keras, args.strategies):
        run(keras, strategy, args.folder, args.time_limit, args.kinds)
    show(args.folder, args.kinds, args.csv)


if __name__ == "__main__":
    main()
