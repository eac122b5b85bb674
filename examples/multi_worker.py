"""Trains a classifier of many classes on several workers, which keep one model in step.

    python examples/multi_worker.py --workers 2              # two processes here
    python examples/multi_worker.py --workers 2 --in-shards  # half of the classes each
    python examples/multi_worker.py                          # one, or as TF_CONFIG says

On several machines, start the program on each, without `--workers`, with TF_CONFIG in
the environment:

    TF_CONFIG='{"cluster": {"worker": ["host0:12345", "host1:12345"]},
                "task": {"type": "worker", "index": 0}}'

`cluster` lists all workers and is the same everywhere: addresses that each worker can
reach, with free ports. `index` is the place of this worker in the list. All workers run
the same program and take part in each step. A worker waits at the start until all have
started, and ends with an UnavailableError if another dies. `--workers` starts its
processes in just this way.

Each batch is split among the workers. The results equal those of one process, except
for rounding.

It prints (the last digits depend on the processor):

    loss: 0.106939
    precision_at_1: 1.000000
    precision_at_5: 0.200000
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, models, optimizers

DIM = 32


def start(num_workers, arguments):
    """Runs this program in several local processes; if one fails, the others end."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(num_workers)]
    addresses = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()  # The ports are free; a worker will take them.
    processes = []
    for index in range(num_workers):
        config = {
            "cluster": {"worker": addresses},
            "task": {"type": "worker", "index": index},
        }
        # Workers wait for each other within operations, which takes threads.
        more = {"TF_CONFIG": json.dumps(config), "TF_NUM_INTEROP_THREADS": "4"}
        command = [sys.executable, __file__, *arguments]
        processes.append(subprocess.Popen(command, env={**os.environ, **more}))
    while not any(codes := [process.poll() for process in processes]) and None in codes:
        time.sleep(0.2)
    for process in processes:
        process.kill()  # End the workers that wait for the failed one.
    if any(process.wait() for process in processes):
        sys.exit("A worker has failed.")


def points(num_classes, size, seed):
    """Points around class centers, float32 `[size, DIM]`, and class ids `[size]`."""
    centers = np.random.default_rng(0).normal(size=(num_classes, DIM))
    rng = np.random.default_rng([1, seed])
    ids = rng.integers(0, num_classes, size)
    features = centers[ids] + rng.normal(scale=0.3, size=(size, DIM))
    return features.astype(np.float32), ids


def train(args):
    """Trains the model; each worker calls it."""
    in_cluster = "TF_CONFIG" in os.environ
    # This must be TensorFlow's first action: it connects the workers.
    strategy = (
        tf.distribute.MultiWorkerMirroredStrategy()
        if in_cluster
        else tf.distribute.get_strategy()
    )
    is_first = not in_cluster or strategy.cluster_resolver.task_id == 0
    # All workers have the same seed, so that they draw and shuffle in the same way.
    keras.utils.set_random_seed(0)

    with strategy.scope():
        encoder = keras.Sequential(
            [keras.layers.Input((DIM,)), keras.layers.Dense(DIM)]
        )
        classes = args.classes
        if args.in_shards:
            of_rows = optimizers.RowwiseAdagrad(0.1)
            classes = layers.ShardedClassTable(args.classes, DIM, of_rows, seed=0)
        num_sampled = args.num_sampled or None
        model = models.ExtremeClassifier(encoder, classes, DIM, num_sampled, seed=0)
        model.compile(
            optimizers.RowwiseAdagrad(0.1),
            losses.SoftmaxLoss(temperature=0.1),
            metrics=[metrics.PrecisionAtK([1, 5])],
        )

    # All workers have the same batches, and each takes its part of a batch.
    batches = tf.data.Dataset.from_tensor_slices(
        points(args.classes, args.examples, seed=0)
    )
    batches = batches.batch(args.batch_size, drop_remainder=True)
    test = points(args.classes, args.examples // 8, seed=1)

    # Callbacks decide by results, which are the same everywhere. Each worker has its
    # own files.
    callbacks = [keras.callbacks.EarlyStopping("loss", patience=2)]
    if args.save:
        folder = args.save.parent if is_first else pathlib.Path(tempfile.mkdtemp())
        callbacks.append(keras.callbacks.ModelCheckpoint(str(folder / args.save.name)))
    model.fit(
        batches,
        epochs=args.epochs,
        shuffle=False,
        callbacks=callbacks,
        verbose=2 if is_first else 0,
    )
    results = model.evaluate(
        *test, batch_size=args.batch_size, verbose=0, return_dict=True
    )
    if is_first:
        for name, value in results.items():
            print(f"{name}: {float(value):.6f}")
    return results


def main(argv=None):
    """Starts the workers, or runs as one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add(
        "--workers",
        type=int,
        default=0,
        help="processes to start here (default: %(default)s)",
    )
    add(
        "--classes",
        type=int,
        default=1000,
        help="number of classes (default: %(default)s)",
    )
    add(
        "--num-sampled",
        type=int,
        default=256,
        help="of a step; 0: all (default: %(default)s)",
    )
    add(
        "--in-shards",
        action="store_true",
        help="each worker holds a part of the classes",
    )
    add(
        "--examples",
        type=int,
        default=16_384,
        help="training examples (default: %(default)s)",
    )
    add(
        "--batch-size",
        type=int,
        default=256,
        help="of all workers (default: %(default)s)",
    )
    add("--epochs", type=int, default=4, help="epochs (default: %(default)s)")
    add("--save", type=pathlib.Path, help="a .keras file, written after each epoch")
    arguments = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(arguments)
    if args.workers and "TF_CONFIG" not in os.environ:
        return start(args.workers, arguments)
    return train(args)


if __name__ == "__main__":
    main()
