"""Measures how long the first step of `fit` takes, with a loss of this package and with Keras's.

    python -m scripts.benchmarks.first_step --losses softmax rankmax

The first step traces and optimises the graph, which takes longer than many later steps. This
matters in notebooks, tests and searches. In each of several rounds, a new two-layer model is
trained on one batch, first with Keras's loss and then with ours. The table compares the shortest
first `fit` of each, in CPU seconds, because wall-clock time depends too much on other work on the
machine. Each loss has a separate process. Its first round, which loads shared code, does not count.

Keras's losses are the sparse cross-entropy for class ids, the categorical one for one-hot labels,
and the binary one for multi-hot labels.
"""

import argparse
import time

from scripts.benchmarks import harness

LOSSES = (
    "softmax",
    "rankmax",
    "sparsemax",
    "approx_ndcg",
    "pairwise_logistic",
    "pairwise_hinge",
    "list_mle",
    "ordered_weighted",
)

# Labels -> Keras's loss, and the arguments of ours.
FORMS = {
    "ids": ("SparseCategoricalCrossentropy", {}),
    "one-hot": ("CategoricalCrossentropy", {}),
    "one-hot, max_positives=1": ("CategoricalCrossentropy", {"max_positives": 1}),
    "multi-hot": ("BinaryCrossentropy", {}),
}


def measure(name, args):
    """Seconds of the first step for each form of labels: Keras's and ours."""
    import numpy as np
    from tensorflow import keras

    from rank4class_tf import losses

    batch, n = args.shape
    rng = np.random.default_rng(0)
    features = rng.normal(size=(batch, 32)).astype(np.float32)
    ids = rng.integers(0, n, batch)
    one_hot = np.eye(n, dtype=np.float32)[ids]
    multi_hot = np.maximum(one_hot, rng.random((batch, n)) < 3 / n).astype(np.float32)

    def first_step(loss, labels):
        layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(n)]
        model = keras.Sequential([keras.layers.Input((32,)), *layers])
        model.compile("adam", loss=loss)
        start = time.process_time()
        model.fit(features, labels, batch_size=batch, verbose=0)
        return time.process_time() - start

    result = {}
    for form, (peer, kwargs) in FORMS.items():
        labels = {"ids": ids, "multi-hot": multi_hot}.get(form, one_hot)
        best = [float("inf")] * 2
        for turn in range(args.turns + 1):
            times = [
                first_step(getattr(keras.losses, peer)(from_logits=True), labels),
                first_step(losses.get(f"{name}_loss", **kwargs), labels),
            ]
            if turn:
                best = list(map(min, best, times))
        result[form] = best
    return result


def cell(result, form):
    """A ratio as text."""
    if form not in result:
        return result["error"]
    theirs, ours = result[form]
    return f"{ours / theirs:.2f}"


def parse_args(argv=None):
    """The command line."""
    parser = harness.parser(__spec__, __doc__)
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument(
        "--shape", type=harness.shape_of(2), default=(32, 100), help="batch x classes"
    )
    parser.add_argument("--turns", type=int, default=5, help="repetitions")
    parser.add_argument(
        "--time-limit", type=float, default=600.0, help="time limit per process in seconds"
    )
    parser.add_argument(
        "--memory-limit", type=float, default=8.0, help="memory limit per process in GB"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None):
    """Prints the table."""
    args = parse_args(argv)
    if args.child:
        harness.answer(lambda: measure(args.losses[0], args), args.memory_limit)
        return
    of_run = harness.options(args, "turns", "memory_limit")
    rows, keras_seconds = [], []
    for name in args.losses:
        child = ["--child", "--losses", name, "--shape", harness.shape_text(args.shape)]
        result = harness.in_process(__spec__.name, [*child, *of_run], time_limit=args.time_limit)
        rows.append([name, *(cell(result, form) for form in FORMS)])
        keras_seconds += [result[form][0] for form in FORMS if form in result]
    title = f"First step of fit over that with Keras's loss, {harness.shape_text(args.shape)}"
    if keras_seconds:
        title += f" (Keras: {min(keras_seconds):.2f} to {max(keras_seconds):.2f} s)"
    harness.show([harness.Table(["loss", *FORMS], rows, title, len(FORMS))], args)


if __name__ == "__main__":
    main()
