"""Checks that training with classes in shards gives the same results as on one device.

    python -m scripts.robustness.shard_matrix --folder out/shards

An `ExtremeClassifier` with a `ShardedClassTable` takes ten steps of `fit` with each loss and each
row-wise optimizer, under Keras 3 and Keras 2: on one device, with one, two and four replicas of one
process, and with two processes. The reference is a `ClassTable` on one device. Each entry of the
table is the largest difference from the reference over the three optimizers. It covers all weights,
rows of classes and losses, relative to the largest number of the array.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

from scripts import command_line, tables
from scripts.robustness.strategy_matrix import free_ports

REFERENCE, WORKERS = "reference", "2 processes"
KINDS = (REFERENCE, "1 shard", "2 shards", "4 shards", WORKERS)
CLASSES, DIM, BATCH, STEPS, SAMPLED = 203, 8, 32, 10, 50


NAMES = (
    *("softmax", "softmax, sampled", "Rankmax", "Rankmax, sampled"),
    *("OWL", "mined", "ApproxNDCG", "ApproxNDCG, sampled"),
)


def loss_of(case):
    """The loss of a case, and the number of sampled classes (None for all)."""
    from rank4class_tf import losses, ops

    softmax, top = losses.SoftmaxLoss(0.5), ops.TopKWeights(3)
    of_case = {
        "softmax": (softmax, None),
        "softmax, sampled": (softmax, SAMPLED),
        "Rankmax": (losses.RankmaxLoss(), None),
        "Rankmax, sampled": (losses.RankmaxLoss(), SAMPLED),
        "OWL": (losses.OrderedWeightedLoss("binary", "hinge", top), None),
        "mined": (losses.OrderedWeightedLoss("pairwise", "logistic", top), SAMPLED),
        "ApproxNDCG": (losses.ApproxNDCGLoss(), None),
        "ApproxNDCG, sampled": (losses.ApproxNDCGLoss(), SAMPLED),
    }
    return of_case[case]


def optimizers_of(rate):
    """Name -> a row-wise optimizer."""
    from rank4class_tf import optimizers

    return {
        "SGD": optimizers.RowwiseSGD(10 * rate, momentum=0.5),
        "Adagrad": optimizers.RowwiseAdagrad(rate),
        "Adam": optimizers.RowwiseAdam(rate / 3),
    }


def train(kind, case, optimizer, rate):
    """Trains a model and returns all its arrays at the end."""
    from tensorflow import keras

    from rank4class_tf import layers, models

    keras.utils.set_random_seed(0)
    loss, num_sampled = loss_of(case)
    encoder = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(DIM)])
    of_rows = optimizers_of(rate)[optimizer]
    classes = layers.ShardedClassTable(CLASSES, DIM, of_rows, seed=1)
    if kind == REFERENCE:
        classes.build((None, DIM))
        classes = layers.ClassTable.from_rows(classes.rows())
    model = models.ExtremeClassifier(encoder, classes, DIM, num_sampled, seed=7)
    model.compile(optimizers_of(rate)[optimizer], loss)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(STEPS * BATCH, 6)).astype("float32")
    ids = rng.integers(0, CLASSES, STEPS * BATCH)
    history = model.fit(features, ids, batch_size=BATCH, shuffle=False, verbose=0).history
    return [history["loss"], *encoder.get_weights(), model.classes.rows()]


def child(args):
    """Trains each case and writes its arrays at the end."""
    import tensorflow as tf

    if args.child[0].isdigit() and args.child != WORKERS:
        count = int(args.child.split()[0])
        device = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration()] * count
        tf.config.set_logical_device_configuration(device, logical)
        strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])
    elif args.child == WORKERS:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        strategy = tf.distribute.get_strategy()
    results = {}
    for case in args.cases:
        for optimizer in optimizers_of(args.rate):
            with strategy.scope():
                arrays = train(args.child, case, optimizer, args.rate)
            results |= {f"{case}|{optimizer}|{i}": x for i, x in enumerate(arrays)}
    if json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0) == 0:
        np.savez(args.out, **results)


def run(keras, kind, args):
    """The results of a kind, read from its file or computed now."""
    path = args.folder / f"keras{keras}-{kind.replace(' ', '-')}.npz"
    if not path.exists():
        addresses = [f"localhost:{port}" for port in free_ports(2)]
        processes = []
        for index in range(2 if kind == WORKERS else 1):
            environment = {**os.environ, "TF_USE_LEGACY_KERAS": str(3 - keras)}
            if kind == WORKERS:
                task = {"type": "worker", "index": index}
                config = {"cluster": {"worker": addresses}, "task": task}
                # The processes wait for each other within operations.
                environment |= {"TF_CONFIG": json.dumps(config), "TF_NUM_INTEROP_THREADS": "4"}
            given = ["--child", kind, "--out", str(path), "--cases", *args.cases]
            command = [sys.executable, "-m", __spec__.name, *given, "--rate", str(args.rate)]
            processes.append(subprocess.Popen(command, env=environment))
        if any([process.wait() for process in processes]):
            sys.exit(f"{kind}, Keras {keras}: a process failed.")
    return dict(np.load(path))


def difference(found, expected, case):
    """The largest difference of the arrays of a case."""
    return max(
        np.abs(found[name] - value).max() / np.abs(value).max()
        for name, value in expected.items()
        if name.startswith(f"{case}|")
    )


def main(argv=None):
    """Trains all kinds and prints the table."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("out/shards"))
    parser.add_argument(
        "--cases", nargs="+", choices=NAMES, default=NAMES, help="losses to compare"
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=KINDS[1:],
        default=KINDS[1:],
        help="numbers of shards and processes",
    )
    parser.add_argument("--keras", type=int, nargs="+", choices=(2, 3), default=[3, 2])
    parser.add_argument(
        "--rate", type=command_line.positive(float), default=0.03, help="learning rate of Adagrad"
    )
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        child(args)
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for keras in args.keras:
        expected = run(keras, REFERENCE, args)
        for kind in args.kinds:
            found = run(keras, kind, args)
            cells = [f"{difference(found, expected, case):.0e}" for case in args.cases]
            rows.append([str(keras), kind, *cells])
    print("\n".join(tables.table(["Keras", "", *args.cases], rows)))


if __name__ == "__main__":
    main()
