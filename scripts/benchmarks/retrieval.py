"""Time and memory of retrieval: an in-batch training step, the best of many candidates.

    python -m scripts.benchmarks.retrieval

The first table has a training step of two towers (a layer of `--width` each), with the
other items of the batch as negatives: softmax; softmax with accidental hits masked and
scores corrected by log-Q; and the latter over the 16 highest negatives only. `TwoTower`
is compared with the same towers and optimizer with the layers of keras-rs
(`pip install keras-rs`) and Keras's own loss. The second, `top-k`, has the `--k` best
of `--candidates` for `--queries` queries: the index of `TwoTower`, keras-rs's
`BruteForceRetrieval` and, as a bound, only the matrix product of both.

Everything runs in graph mode. Time and memory have separate processes. The models of a
case alternate, and the best time of each counts. All cases take ten minutes; `--quick`
measures two.
"""

from typing import Any, NamedTuple

from scripts import command_line
from scripts.benchmarks import harness

STEPS = {
    "softmax": {"hits": False},
    "hits and log-Q": {"hits": True, "correct": True},
    "16 highest": {"hits": True, "correct": True, "mined": 16},
}
TOP_K = "top-k"
OURS, THEIRS, PRODUCT = "rank4class_tf", "keras-rs", "product alone"


def our_step(batch, width, hits, correct=False, mined=None):
    """A call that trains a `TwoTower` for one step."""
    from rank4class_tf import layers, models

    model = models.TwoTower(
        tower("query", width),
        tower("candidate", width),
        candidate_id="id" if hits else None,
        normalize=False,
        frequencies=layers.CandidateFrequencies(4 * batch) if correct else None,
        num_mined=mined,
    )
    return trained(model, batch, width)


def their_step(batch, width, hits, correct=False, mined=None):
    """A call that trains a model for one step, built as in keras-rs's guides."""
    import keras_rs
    import tensorflow as tf
    from tensorflow import keras

    class Towers(keras.Model):
        def __init__(self):
            super().__init__()
            self.queries = keras.layers.Dense(width)
            self.candidates = keras.layers.Dense(width)
            self.remove_hits = keras_rs.layers.RemoveAccidentalHits()
            self.correction = keras_rs.layers.SamplingProbabilityCorrection()
            self.mining = keras_rs.layers.HardNegativeMining(mined) if mined else None

        def call(self, inputs):
            return self.queries(inputs["query"]), self.candidates(inputs["candidate"])

        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ):
            scores = tf.matmul(*y_pred, transpose_b=True)
            if correct:
                scores = self.correction(scores, y["probability"])
            if hits:
                scores = self.remove_hits(scores, tf.eye(batch), y["id"])
            # The loss is faster with these than with one-hot labels.
            labels = tf.range(batch)
            if self.mining is not None:
                scores, labels = self.mining(scores, tf.eye(batch))
            return super().compute_loss(x, labels, scores, sample_weight)

    kind = "Categorical" if mined else "SparseCategorical"
    loss = getattr(keras.losses, f"{kind}Crossentropy")(from_logits=True)
    return trained(Towers(), batch, width, loss)


def trained(model, batch, width, loss=None):
    """A call of a model's compiled training step; a keras-rs model has its own loss."""
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras

    from rank4class_tf import losses

    rng = np.random.default_rng(0)
    queries = rng.normal(size=(batch, width)).astype(np.float32)
    candidates = rng.normal(size=(batch, width)).astype(np.float32)
    ids = rng.integers(0, 4 * batch, batch)  # Some occur twice.
    if loss is None:
        data = {"query": queries}, {"candidate": candidates, "id": ids}
    else:  # In keras-rs, the user has to count.
        labels = {"id": ids, "probability": tf.fill([batch], 1 / batch)}
        data = {"query": queries, "candidate": candidates}, labels
    data = tf.nest.map_structure(tf.constant, data)
    model.compile(keras.optimizers.SGD(1e-3), loss=loss or losses.SoftmaxLoss())
    model(data[0])
    model.optimizer.build(model.trainable_variables)
    tf.function(model.train_step)(data)  # Builds everything that the first call builds.
    return harness.compiled(
        lambda x, y: model.train_step((x, y)), *data, jit_compile=False
    )


def tower(name, width):
    """A tower of one layer."""
    from tensorflow import keras

    inputs = keras.layers.Input((width,), name=name)
    return keras.Model({name: inputs}, keras.layers.Dense(width)(inputs))


def search(name, queries, candidates, width, k):
    """A call that returns the k best, in a graph."""
    import tensorflow as tf

    rows = tf.random.stateless_normal([candidates, width], [1, 2])
    asked = tf.random.stateless_normal([queries, width], [3, 4])
    if name == OURS:
        from tensorflow import keras

        from rank4class_tf import models

        same = keras.Sequential(
            [keras.layers.Input((width,)), keras.layers.Activation("linear")]
        )
        model = models.TwoTower(same, same, normalize=False)
        model.index(rows, batch_size=candidates)
        return harness.compiled(lambda x: model.top_k(x, k), asked, jit_compile=False)
    if name == THEIRS:
        import keras_rs

        layer = keras_rs.layers.BruteForceRetrieval(rows, k=k)
        return harness.compiled(lambda x: layer(x), asked, jit_compile=False)

    def product(x):
        # It computes all and reads few.
        return tf.matmul(x, rows, transpose_b=True)[:, 0]

    return harness.compiled(product, asked, jit_compile=False)


def make_call(case, name, sizes):
    """The call of one of those that a case compares."""
    width = sizes["width"]
    if case in STEPS:
        make = our_step if name == OURS else their_step
        return make(sizes["batch"], width, **STEPS[case])
    return search(name, sizes["queries"], sizes["candidates"], width, sizes["k"])


def measure(case, sizes, what, seconds):
    """Times of what a case compares, by name, or memory of one, in this process."""
    if what != "time":
        return harness.memory_of(make_call(case, what, sizes))
    made = {}
    for name in (OURS, THEIRS) if case in STEPS else (OURS, THEIRS, PRODUCT):
        try:
            made[name] = make_call(case, name, sizes)
        except ImportError:
            continue
    times = harness.best_times(list(made.values()), seconds)
    return dict(zip(made, times, strict=True))


class Row(NamedTuple):
    """A case with its times and memory in MB, by name."""

    case: str
    times: dict[str, Any]
    memory: dict[str, float | None]


def run(case, args):
    """The figures of a case."""
    names = ("batch", "width", "queries", "candidates", "k")
    sizes = command_line.chosen(args, *names)
    settings = {"case": case, "sizes": sizes}
    times = harness.run(__spec__.name, args, what="time", **settings)
    if "error" in times:
        return Row(f"{case}: {times['error']}", {}, {})
    memory = {}
    for name in times:
        found = harness.run(
            __spec__.name, args, harness.RETURN_MEMORY, what=name, **settings
        )
        memory[name] = found if isinstance(found, float) else None
    return Row(case, times, memory)


def table(rows, title):
    """The table of a suite: time and memory of each, and ratios of ours to others."""
    measured = set().union(*(row.times for row in rows))
    names = [name for name in (OURS, THEIRS, PRODUCT) if name in measured]
    others = names[1:]
    head = ["case", *(f"{n}, ms" for n in names), *(f"{n}, MB" for n in names)]
    head += [f"{what} ÷ {n}" for what in ("time", "memory") for n in others]
    lines = []
    for case, times, memory in rows:
        line = [case]
        line += [harness.number(times.get(name), 1e3) for name in names]
        line += [harness.number(memory.get(name), digits=0) for name in names]
        for figures in (times, memory):
            ours = figures.get(OURS)
            line += [harness.quotient(ours, figures.get(name), 3) for name in others]
        lines.append(line)
    return harness.Table(title, head, lines, len(head) - 1)


def parser():
    """The command line."""
    quick = {
        "cases": ["16 highest", TOP_K],
        "batch": 32,
        "width": 4,
        "queries": 3,
        "seconds": 0.02,
        "candidates": 500,
        "k": 7,
    }
    result = harness.parser(
        __spec__, __doc__, quick, seconds=10.0, time_limit=600.0, memory_limit=16.0
    )
    add = result.add_value
    result.add_names("--cases", [*STEPS, TOP_K], "rows")
    add("--batch", int, 4096, "pairs per step")
    add("--width", int, 64, "width of encodings")
    add("--queries", int, 256, "queries per search")
    add("--candidates", int, 1_000_000, "candidates to search")
    add("--k", int, 100, "how many to find")
    return result


def measured(args):
    """Yields the tables of the steps and of the search."""
    if cases := [case for case in args.cases if case in STEPS]:
        rows = [run(case, args) for case in cases]
        yield table(rows, f"A step of {args.batch:,} pairs, d = {args.width}")
    if TOP_K in args.cases:
        title = f"The {args.k} best of {args.candidates:,} for {args.queries} queries"
        yield table([run(TOP_K, args)], f"{title}, d = {args.width}")


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
