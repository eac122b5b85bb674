"""Time of `fit` with a loss and metrics, compared with `fit` with Keras's own.

    taskset -c 0 python -m scripts.benchmarks.in_keras

Softmax with NDCG(5) and TopKAccuracy(5), compared with Keras's cross-entropy with its top-1 and
top-5 accuracy. The model has two layers, 64 inputs and 10 classes; a batch has 32 examples. The
first step traces the graph. A later step is one of `--steps`, run one by one or 20 per execution,
the latter also with `jit_compile=True`.

Ours and Keras's alternate, and the best time of each counts.
"""

import functools
import time

from scripts.benchmarks import harness

BATCH, FEATURES, CLASSES = 32, 64, 10


def model(ours, **options):
    """A compiled model."""
    from tensorflow import keras

    from rank4class_tf import losses, metrics

    if ours:
        loss, measured = losses.SoftmaxLoss(), [metrics.NDCG(5), metrics.TopKAccuracy(5)]
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        top = keras.metrics.SparseTopKCategoricalAccuracy
        measured = [top(1, name="top_1"), top(5, name="top_5")]
    hidden = keras.layers.Dense(64, activation="relu")
    result = keras.Sequential(
        [keras.layers.Input((FEATURES,)), hidden, keras.layers.Dense(CLASSES)]
    )
    result.compile("adam", loss, metrics=measured, **options)
    return result


def fits(args):
    """Name -> best seconds of ours and of Keras's, for the first step and for later steps."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, FEATURES)).astype(np.float32)
    y = rng.integers(0, CLASSES, BATCH)

    def first(ours):
        fresh = model(ours)
        start = time.process_time()
        fresh.fit(x, y, batch_size=BATCH, verbose=0)
        return time.process_time() - start

    turns = [[first(ours) for ours in (True, False)] for _ in range(args.turns + 1)]
    yield "first step of fit", [min(times) for times in zip(*turns[1:], strict=True)]
    data = tf.data.Dataset.from_tensors((x, y)).cache().repeat()
    for per_execution, jit in ((1, False), (20, False), (20, True)):
        options = {"steps_per_execution": per_execution, "jit_compile": jit}
        models = [model(ours, **options) for ours in (True, False)]
        calls = [
            functools.partial(m.fit, data, steps_per_epoch=args.steps, shuffle=False, verbose=0)
            for m in models
        ]
        times = harness.best_times(calls, args.seconds)
        name = f"a step, {per_execution} an execution" + ", XLA" * jit
        yield name, [t / args.steps for t in times]


def parse_args(argv=None):
    """The command line."""
    parser = harness.parser(__spec__, __doc__)
    parser.add_argument("--steps", type=int, default=400, help="steps per measurement")
    parser.add_argument("--turns", type=int, default=5, help="repetitions of the first step")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds per case")
    return parser.parse_args(argv)


def main(argv=None):
    """Prints the table."""
    args = parse_args(argv)

    def tables():
        rows = [
            [name, f"{ours * 1e3:.2f}", f"{other * 1e3:.2f}", f"{ours / other:.2f}"]
            for name, (ours, other) in fits(args)
        ]
        head = ["call", "ours, ms", "compared with, ms", "ours over it"]
        yield harness.Table(head, rows, "`fit` with metrics", 3)

    harness.show(tables(), args)


if __name__ == "__main__":
    main()
