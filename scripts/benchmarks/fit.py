"""Time of `fit` with a loss and metrics, compared with `fit` with Keras's own.

    taskset -c 0 python -m scripts.benchmarks.fit

Suites:

- `first_step`: the first step of a two-layer model, which traces and optimises the
  graph and so takes longer than many later steps. Each loss, and each form of labels,
  is compared with Keras's cross-entropy for these labels: the sparse, the categorical
  or the binary one. In each round, a new model is trained on one batch. The table has
  the shortest first `fit`, in CPU seconds, because wall-clock time depends too much on
  other work on the machine. Each loss has a separate process, whose first round, which
  loads shared code, does not count.
- `metrics`: softmax with NDCG(5) and TopKAccuracy(5), compared with Keras's
  cross-entropy with its top-1 and top-5 accuracy: the first step, and one of `--steps`
  later steps, run one by one or 20 per execution, the latter also with
  `jit_compile=True`.

Ours and Keras's alternate, and the best time of each counts. Both suites take five
minutes. `--quick` measures one loss, and few steps.
"""

import functools
import time

from scripts import command_line
from scripts.benchmarks import harness

LOSSES = [
    "softmax",
    "rankmax",
    "sparsemax",
    "approx_ndcg",
    "pairwise_logistic",
    "pairwise_hinge",
    "list_mle",
    "ordered_weighted",
]

# Labels -> Keras's loss, and the arguments of ours.
FORMS = {
    "ids": ("SparseCategoricalCrossentropy", {}),
    "one-hot": ("CategoricalCrossentropy", {}),
    "one-hot, max_positives=1": ("CategoricalCrossentropy", {"max_positives": 1}),
    "multi-hot": ("BinaryCrossentropy", {}),
}


def model(features, classes, loss, metrics=None, **options):
    """A compiled model of two layers."""
    from tensorflow import keras

    hidden = keras.layers.Dense(64, activation="relu")
    result = keras.Sequential(
        [keras.layers.Input((features,)), hidden, keras.layers.Dense(classes)]
    )
    result.compile("adam", loss, metrics=metrics, **options)
    return result


def first_steps(make_models, x, y, turns):
    """The shortest first `fit` of models that some functions make, in CPU seconds."""
    rounds = []
    for _ in range(turns + 1):
        rounds.append([])
        for make in make_models:
            fresh = make()
            start = time.process_time()
            fresh.fit(x, y, batch_size=len(x), verbose=0)
            rounds[-1].append(time.process_time() - start)
    return [min(times) for times in zip(*rounds[1:], strict=True)]


def measure(loss, shape, steps, turns, seconds):
    """Times of ours and Keras's, by form of labels, or by call if no loss is given."""
    import numpy as np

    rng = np.random.default_rng(0)
    batch, classes = shape
    x = rng.normal(size=(batch, 32 if loss else 64)).astype(np.float32)
    ids = rng.integers(0, classes, batch)
    if loss is None:
        return dict(with_metrics(x, ids, classes, steps, turns, seconds))
    from tensorflow import keras

    from rank4class_tf import losses

    one_hot = np.eye(classes, dtype=np.float32)[ids]
    multi_hot = np.maximum(one_hot, rng.random((batch, classes)) < 3 / classes).astype(
        np.float32
    )
    labels = {"ids": ids, "multi-hot": multi_hot}
    result = {}
    for form, (peer, kwargs) in FORMS.items():
        makers = (
            lambda kwargs=kwargs: losses.get(f"{loss}_loss", **kwargs),
            lambda peer=peer: getattr(keras.losses, peer)(from_logits=True),
        )
        models = [lambda make=make: model(32, classes, make()) for make in makers]
        result[form] = first_steps(models, x, labels.get(form, one_hot), turns)
    return result


def with_metrics(x, ids, classes, steps, turns, seconds):
    """Yields calls and the best seconds of ours and of Keras's."""
    import tensorflow as tf
    from tensorflow import keras

    from rank4class_tf import losses, metrics

    def ours(**options):
        measured = [metrics.NDCG(5), metrics.TopKAccuracy(5)]
        return model(64, classes, losses.SoftmaxLoss(), measured, **options)

    def theirs(**options):
        top = keras.metrics.SparseTopKCategoricalAccuracy
        measured = [top(1, name="top_1"), top(5, name="top_5")]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return model(64, classes, loss, measured, **options)

    yield "first step of fit", first_steps([ours, theirs], x, ids, turns)
    data = tf.data.Dataset.from_tensors((x, ids)).cache().repeat()
    for per_execution, jit in ((1, False), (20, False), (20, True)):
        calls = []
        for make in (ours, theirs):
            fit = make(steps_per_execution=per_execution, jit_compile=jit).fit
            calls.append(
                functools.partial(
                    fit, data, steps_per_epoch=steps, shuffle=False, verbose=0
                )
            )
        name = f"a step, {per_execution} an execution" + ", XLA" * jit
        yield name, [taken / steps for taken in harness.best_times(calls, seconds)]


def parser():
    """The command line."""
    quick = {"losses": ["softmax"], "steps": 20, "turns": 1, "seconds": 0.1}
    result = harness.parser(__spec__, __doc__, quick, seconds=4.0, time_limit=600.0)
    result.add_names("--suite", ["first_step", "metrics"], "tables")
    result.add_names("--losses", LOSSES, "rows of first_step")
    result.add_value("--steps", int, 400, "steps of a `fit` with metrics")
    result.add_value("--turns", int, 5, "repetitions of a first step")
    return result


def measured(args):
    """Yields the tables."""

    def run(**settings):
        settings |= command_line.chosen(args, "steps", "turns")
        return harness.run(__spec__.name, args, **settings)

    if "first_step" in args.suite:
        found = {loss: run(loss=loss, shape=(32, 100)) for loss in args.losses}
        yield table_of_first_steps(found)
    if "metrics" in args.suite:
        yield table_with_metrics(run(loss=None, shape=(32, 10)))


def table_of_first_steps(found):
    """Each loss's first step over that of Keras, by form of labels."""
    rows = []
    seconds = []
    for loss, of_loss in found.items():
        row = [loss]
        for form in FORMS:
            if form in of_loss:
                ours, theirs = of_loss[form]
                row.append(harness.quotient(ours, theirs))
                seconds.append(theirs)
            else:
                row.append(of_loss["error"])
        rows.append(row)
    title = "First step of fit over that with Keras's loss, 32 × 100"
    if seconds:
        title += f" (Keras: {min(seconds):.2f} to {max(seconds):.2f} s)"
    return harness.Table(title, ["loss", *FORMS], rows, len(FORMS))


def table_with_metrics(found):
    """The seconds of each call, beside Keras's."""
    if "error" in found:
        rows = [["all calls", found["error"], "", ""]]
    else:
        rows = [
            [name, f"{ours * 1e3:.2f}", f"{other * 1e3:.2f}", f"{ours / other:.2f}"]
            for name, (ours, other) in found.items()
        ]
    head = ["call", "ours, ms", "compared with, ms", "ours over it"]
    return harness.Table("`fit` with metrics", head, rows, 3)


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
