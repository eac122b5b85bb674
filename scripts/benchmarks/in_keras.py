"""Time of losses, metrics and searches compared with Keras's own, in eager calls and in `fit`.

    taskset -c 0 python -m scripts.benchmarks.in_keras

- eager: a loss with its gradient, and an update of a metric, for `--eager` lists x classes, after
  the calls that trace their graphs; and a search for the 10 best of `--classes` classes for one
  example, compared with the same search without these graphs.
- in `fit`: softmax with NDCG(5) and TopKAccuracy(5), compared with Keras's cross-entropy with its
  top-1 and top-5 accuracy. The model has two layers, 64 inputs and 10 classes; a batch has 32
  examples. The first step traces the graph. A later step is one of `--steps`, run one by one or 20
  per execution, the latter also with `jit_compile=True`.

Ours and Keras's alternate, and the best time of each counts.
"""

import functools
import time

from scripts.benchmarks import harness

CASES = ("loss, eager", "NDCG(5), eager", "TopKAccuracy(5), eager", "top_k, eager")
BATCH, FEATURES, CLASSES = 32, 64, 10


def eager_calls(args):
    """Name -> our call and the call it is compared with."""
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras

    from rank4class_tf import layers, losses, metrics

    rng = np.random.default_rng(0)
    batch, n = args.eager
    scores = tf.constant(rng.normal(size=(batch, n)), tf.float32)
    ids = tf.constant(rng.integers(0, n, batch))

    def step(loss):
        def call():
            with tf.GradientTape() as tape:
                tape.watch(scores)
                value = loss(ids, scores)
            return tape.gradient(value, scores)

        return call

    def update(metric):
        return lambda: metric.update_state(ids, scores)

    table = layers.SampledScores(args.classes)
    encoding = tf.constant(rng.normal(size=(1, FEATURES)), tf.float32)
    table.build(encoding.shape)

    def plain_search():
        tf.config.run_functions_eagerly(True)
        best = table.top_k(encoding, 10)
        tf.config.run_functions_eagerly(False)
        return best

    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    top_5 = keras.metrics.SparseTopKCategoricalAccuracy
    pairs = (
        (step(losses.SoftmaxLoss()), step(keras_loss)),
        (update(metrics.NDCG(5)), update(top_5(5))),
        (update(metrics.TopKAccuracy(5)), update(top_5(5))),
        (lambda: table.top_k(encoding, 10), plain_search),
    )
    return dict(zip(CASES, pairs, strict=True))


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


def measure(args):
    """Name -> best seconds of our call and of the call it is compared with."""
    result = {}
    for name, calls in eager_calls(args).items():
        for call in calls * 3:
            call()
        result[name] = harness.best_times(calls, args.seconds)
    return result | dict(fits(args))


def parse_args(argv=None):
    """The command line."""
    parser = harness.parser(__spec__, __doc__)
    parser.add_argument("--eager", type=harness.shape_of(2), default=(32, 100))
    parser.add_argument("--classes", type=int, default=1_000_000)
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
            for name, (ours, other) in measure(args).items()
        ]
        head = ["call", "ours, ms", "compared with, ms", "ours over it"]
        title = f"Eager {harness.shape_text(args.eager)}, {args.classes:,} classes; fit as above"
        yield harness.Table(head, rows, title, 3)

    harness.show(tables(), args)


if __name__ == "__main__":
    main()
