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

from typing import NamedTuple

from scripts import command_line
from scripts.benchmarks import harness


class Step(NamedTuple):
    """What a training step does with the other items of the batch.

    Attributes:
        corrected: whether accidental hits are masked, and scores corrected by log-Q.
        mined: how many of the highest negatives the loss reads; None means all.
    """

    corrected: bool
    mined: int | None = None


STEPS = {
    "softmax": Step(corrected=False),
    "hits and log-Q": Step(corrected=True),
    "16 highest": Step(corrected=True, mined=16),
}
TOP_K = "top-k"
OURS, THEIRS, PRODUCT = "rank4class_tf", "keras-rs", "product alone"


class Sizes(NamedTuple):
    """The sizes of the command line: pairs of a step, encodings, and the search."""

    batch: int
    width: int
    queries: int
    candidates: int
    k: int


def our_step(case, batch, width):
    """A call that trains a `TwoTower` for one step."""
    from rank4class_tf import layers, models

    options = {}
    if case.corrected:
        options["candidate_id"] = "id"
        options["frequencies"] = layers.CandidateFrequencies(4 * batch)
    model = models.TwoTower(
        tower("query", width),
        tower("candidate", width),
        normalize=False,
        num_mined=case.mined,
        **options,
    )
    return trained(model, batch, width)


def their_step(case, batch, width):
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
            self.mining = None
            if case.mined is not None:
                self.mining = keras_rs.layers.HardNegativeMining(case.mined)

        def call(self, inputs):
            return self.queries(inputs["query"]), self.candidates(inputs["candidate"])

        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ):
            scores = tf.matmul(*y_pred, transpose_b=True)
            if case.corrected:
                scores = self.correction(scores, y["probability"])
                scores = self.remove_hits(scores, tf.eye(batch), y["id"])
            # The loss is faster with these than with one-hot labels.
            labels = tf.range(batch)
            if self.mining is not None:
                scores, labels = self.mining(scores, tf.eye(batch))
            return super().compute_loss(x, labels, scores, sample_weight)

    kind = "SparseCategorical" if case.mined is None else "Categorical"
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


def search(name, sizes):
    """A call that returns the k best, in a graph."""
    import tensorflow as tf

    k = sizes.k
    width = sizes.width
    rows = tf.random.stateless_normal([sizes.candidates, width], [1, 2])
    asked = tf.random.stateless_normal([sizes.queries, width], [3, 4])
    if name == OURS:
        from tensorflow import keras

        from rank4class_tf import models

        same = keras.Sequential(
            [keras.layers.Input((width,)), keras.layers.Activation("linear")]
        )
        model = models.TwoTower(same, same, normalize=False)
        model.index(rows, batch_size=sizes.candidates)
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
    if case not in STEPS:
        return search(name, sizes)
    make = our_step if name == OURS else their_step
    return make(STEPS[case], sizes.batch, sizes.width)


def measure(case, sizes, what, seconds):
    """Times of what a case compares, by name, or memory of one, in this process."""
    sizes = Sizes(**sizes)
    if what != "time":
        return harness.memory_of(make_call(case, what, sizes))
    made = {}
    names = (OURS, THEIRS) if case in STEPS else (OURS, THEIRS, PRODUCT)
    for name in names:
        try:
            made[name] = make_call(case, name, sizes)
        except ImportError:
            continue
    times = harness.best_times(list(made.values()), seconds)
    return dict(zip(made, times, strict=True))


class Row(NamedTuple):
    """A case with its times and its memory in MB, or why that is missing, by name."""

    case: str
    times: dict[str, float]
    memory: dict[str, float | str | None]


def run(case, args):
    """The figures of a case."""
    sizes = command_line.chosen(args, *Sizes._fields)
    settings = {"case": case, "sizes": sizes}
    times = harness.run(__spec__.name, args, what="time", **settings)
    if "error" in times:
        return Row(f"{case}: {times['error']}", {}, {})
    memory = {}
    for name in times:
        found = harness.run(
            __spec__.name, args, harness.RETURN_MEMORY, what=name, **settings
        )
        memory[name] = found["error"] if isinstance(found, dict) else found
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
