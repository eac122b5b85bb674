"""Time and memory of retrieval: a training step in the batch, and the best of many candidates.

    python -m scripts.benchmarks.retrieval

Suites:

- `step`: a training step of two towers (a layer of `--width` each), with the other items of the
  batch as negatives: softmax; softmax with accidental hits masked and scores corrected by log-Q;
  and the latter over the 16 highest negatives only. `TwoTower` is compared with the same towers and
  optimizer with the layers of keras-rs (`pip install keras-rs`) and Keras's own loss.
- `pieces`: a step of towers of `--layers` layers of 1,024 units with `encode_in` and `score_in`,
  compared with the plain step;
- `catalogue`: `evaluate` of `--queries` queries among 100,000 candidates that such a tower encodes,
  after training and when nothing has changed, compared with only encoding them;
- `top_k`: the `--k` best of `--candidates` for `--queries` queries: the index of `TwoTower`,
  keras-rs's `BruteForceRetrieval` and, as a bound, only the matrix product of both.

Time and memory are measured in separate processes. To measure time, all models of a case alternate,
and the best time of each counts, so other work on the machine affects all equally.
"""

import argparse

from scripts.benchmarks import harness

STEPS = {
    "softmax": {"hits": False},
    "hits and log-Q": {"hits": True, "correct": True},
    "16 highest": {"hits": True, "correct": True, "mined": 16},
}
SUITES = ("step", "pieces", "catalogue", "top_k")
OURS, THEIRS, PRODUCT = "rank4class_tf", "keras-rs", "product alone"
PIECES, PLAIN = "in pieces of 256", "plain"
CHANGED, UNCHANGED, ENCODING = "changed", "unchanged", "encoding alone"
CATALOGUE = 100_000


def data(batch, width):
    """Features of queries and candidates, and ids, some of which occur twice."""
    import numpy as np

    rng = np.random.default_rng(0)
    features = [rng.normal(size=(batch, width)).astype(np.float32) for _ in range(2)]
    return *features, rng.integers(0, 4 * batch, batch)


def our_step(batch, width, jit_compile, hits, correct=False, mined=None):
    """A call that trains a `TwoTower` for one step."""
    from tensorflow import keras

    from rank4class_tf import layers, losses, models

    def tower(name):
        inputs = keras.layers.Input((width,), name=name)
        return keras.Model({name: inputs}, keras.layers.Dense(width)(inputs))

    model = models.TwoTower(
        tower("query"),
        tower("candidate"),
        candidate_id="id" if hits else None,
        normalize=False,
        frequencies=layers.CandidateFrequencies(4 * batch) if correct else None,
        num_mined=mined,
    )
    model.compile(keras.optimizers.SGD(1e-3), loss=losses.SoftmaxLoss())
    queries, candidates, ids = data(batch, width)
    batch_of = {"query": queries}, {"candidate": candidates, "id": ids}
    return trained(model, batch_of, jit_compile)


def their_step(batch, width, jit_compile, hits, correct=False, mined=None):
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

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            scores = tf.matmul(*y_pred, transpose_b=True)
            if correct:
                scores = self.correction(scores, y["probability"])
            if hits:
                scores = self.remove_hits(scores, tf.eye(batch), y["id"])
            labels = tf.range(batch)  # The loss is faster with these than with one-hot labels.
            if self.mining is not None:
                scores, labels = self.mining(scores, tf.eye(batch))
            return super().compute_loss(x, labels, scores, sample_weight)

    model = Towers()
    kind = "Categorical" if mined else "SparseCategorical"
    loss = getattr(keras.losses, f"{kind}Crossentropy")(from_logits=True)
    model.compile(keras.optimizers.SGD(1e-3), loss=loss)
    queries, candidates, ids = data(batch, width)
    # In keras-rs, the user has to count.
    probability = tf.fill([batch], 1 / batch)
    batch_of = {"query": queries, "candidate": candidates}, {"id": ids, "probability": probability}
    return trained(model, batch_of, jit_compile)


def trained(model, batch, jit_compile):
    """A call of a model's compiled training step."""
    import tensorflow as tf

    batch = tf.nest.map_structure(tf.constant, batch)
    model(batch[0])
    model.optimizer.build(model.trainable_variables)
    tf.function(model.train_step)(batch)  # Builds everything that the first call builds.
    return harness.compiled(lambda x, y: model.train_step((x, y)), *batch, jit_compile=jit_compile)


def deep_tower(name, width, layers):
    """A tower whose activations are most of the memory of a step."""
    from tensorflow import keras

    inputs = x = keras.layers.Input((width,), name=name)
    for _ in range(layers):
        x = keras.layers.Dense(1024, "relu")(x)
    return keras.Model({name: inputs}, keras.layers.Dense(width)(x))


def step_in_pieces(batch, width, layers, jit_compile, size):
    """A call that trains deep towers for one step."""
    from tensorflow import keras

    from rank4class_tf import losses, models

    both = (deep_tower(name, width, layers) for name in ("query", "candidate"))
    model = models.TwoTower(*both, candidate_id="id", encode_in=size, score_in=size)
    model.compile(keras.optimizers.SGD(1e-3), loss=losses.SoftmaxLoss())
    queries, candidates, ids = data(batch, width)
    return trained(model, ({"query": queries}, {"candidate": candidates, "id": ids}), jit_compile)


def evaluations(queries, width, layers, catalogue=CATALOGUE):
    """Name -> a call that evaluates, or that encodes all candidates."""
    import numpy as np

    from rank4class_tf import losses, metrics, models

    def model_and_pairs():
        both = (deep_tower(name, width, layers) for name in ("query", "candidate"))
        model = models.TwoTower(*both, candidate_id="id")
        model.compile("sgd", loss=losses.SoftmaxLoss(), metrics=[metrics.NDCG(10)])
        rows = np.random.default_rng(0).normal(size=(catalogue, width)).astype(np.float32)
        model.index({"candidate": rows, "id": np.arange(catalogue)})
        found = {"candidate": rows[:queries], "id": np.arange(queries)}
        return model, ({"query": rows[:queries]}, found)

    def changed():
        model, pairs = model_and_pairs()
        weight = model.candidate_encoder.trainable_variables[0]

        def call():
            weight.assign_add(1e-6 * np.ones(weight.shape))
            model.evaluate(*pairs, batch_size=queries, verbose=0)

        return call

    def unchanged():
        model, pairs = model_and_pairs()
        return lambda: model.evaluate(*pairs, batch_size=queries, verbose=0)

    return {CHANGED: changed, UNCHANGED: unchanged, ENCODING: lambda: model_and_pairs()[0].index}


def searches(queries, candidates, width, k):
    """Name -> a call that returns the k best, in a graph."""
    import tensorflow as tf
    from tensorflow import keras

    from rank4class_tf import models

    rows = tf.random.stateless_normal([candidates, width], [1, 2])
    asked = tf.random.stateless_normal([queries, width], [3, 4])

    def ours():
        tower = keras.Sequential([keras.layers.Input((width,)), keras.layers.Activation("linear")])
        model = models.TwoTower(tower, tower, normalize=False)
        model.index(rows, batch_size=candidates)
        return harness.compiled(lambda x: model.top_k(x, k), asked, jit_compile=False)

    def theirs():
        import keras_rs

        layer = keras_rs.layers.BruteForceRetrieval(rows, k=k)
        return harness.compiled(lambda x: layer(x), asked, jit_compile=False)

    def product():
        def largest(x):
            # This computes all products, but reads few of them.
            return tf.matmul(x, rows, transpose_b=True)[:, 0]

        return harness.compiled(largest, asked, jit_compile=False)

    return {OURS: ours, THEIRS: theirs, PRODUCT: product}


def calls_of(args, case):
    """Name -> a function that makes the call to measure."""
    if case in STEPS:
        step = {OURS: our_step, THEIRS: their_step}
        arguments = args.batch, args.width, args.mode == "xla"
        return {
            name: lambda make=make: make(*arguments, **STEPS[case]) for name, make in step.items()
        }
    if case == "pieces":
        arguments = args.batch, args.width, args.layers, args.mode == "xla"
        return {
            name: lambda size=size: step_in_pieces(*arguments, size)
            for name, size in ((PIECES, 256), (PLAIN, None))
        }
    if case == "catalogue":
        return evaluations(args.queries, args.width, args.layers)
    return searches(args.queries, args.candidates, args.width, args.k)


def measure(args):
    """The figures of a process."""
    calls = calls_of(args, args.case)
    if args.child == "time":
        made = {}
        for name, make in calls.items():
            try:
                made[name] = make()
            except ImportError:
                continue
        times = harness.best_times(list(made.values()), args.seconds)
        return dict(zip(made, times, strict=True))
    return {"memory": harness.memory_of(calls[args.of]())}


def run(case, mode, args):
    """Times by name, and memory by name in MB."""
    names = ["batch", "width", "layers", "queries", "candidates", "k", "seconds"]
    given = harness.options(args, *names) + ["--case", case, "--mode", mode]
    times = harness.in_process(__spec__.name, ["--child", "time", *given])
    memory = {}
    for name in times if "error" not in times else ():
        child = ["--child", "memory", "--of", name, *given]
        memory[name] = harness.in_process(__spec__.name, child, harness.RETURN_MEMORY)
    return times, {name: of.get("memory") for name, of in memory.items()}


def table(rows, title, of=(OURS, THEIRS, PRODUCT)):
    """The table of a suite: time and memory of each, and ratios of the first to the others."""
    names = [n for n in of if any(n in times for _, times, _ in rows)]
    head = ["case", *(f"{n}, ms" for n in names), *(f"{n}, MB" for n in names)]
    head += [f"time ÷ {n}" for n in names[1:]] + [f"memory ÷ {n}" for n in names[1:]]
    lines = []
    for case, times, memory in rows:
        if "error" in times:
            lines.append([case, times["error"], *[""] * (len(head) - 2)])
            continue
        cells = [f"{times[n] * 1e3:.1f}" if n in times else "" for n in names]
        cells += [f"{memory[n]:.0f}" if memory.get(n) is not None else "" for n in names]
        for figures in (times, memory):
            for name in names[1:]:
                both = figures.get(name) and figures.get(of[0]) is not None
                cells.append(f"{figures[of[0]] / figures[name]:.3f}" if both else "")
        lines.append([case, *cells])
    return harness.Table(head, lines, title, len(head) - 1)


def parse_args(argv=None):
    """The command line."""
    parser = harness.parser(__spec__, __doc__)
    parser.add_argument("--suite", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--batch", type=int, default=4096, help="pairs per step")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=8, help="layers of the towers of `pieces`")
    parser.add_argument("--queries", type=int, default=256, help="queries per search")
    parser.add_argument("--candidates", type=int, default=1_000_000, help="candidates to search")
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds per case and mode")
    parser.add_argument("--modes", nargs="+", choices=harness.MODES, default=["graph"])
    parser.add_argument("--child", choices=("time", "memory"), help=argparse.SUPPRESS)
    for name in ("case", "mode", "of"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None):
    """Prints a table for each suite."""
    args = parse_args(argv)
    if args.child:
        harness.answer(lambda: measure(args), memory_limit=16.0)
        return

    def tables():
        if "step" in args.suite:
            cases = [(case, mode) for mode in args.modes for case in STEPS]
            rows = [(f"{case}, {mode}", *run(case, mode, args)) for case, mode in cases]
            yield table(rows, f"A step of {args.batch:,} pairs, d = {args.width}")
        if "pieces" in args.suite:
            rows = [(f"pieces, {mode}", *run("pieces", mode, args)) for mode in args.modes]
            title = f"A step of {args.batch:,} pairs, towers of {args.layers} layers of 1,024"
            yield table(rows, title, (PIECES, PLAIN))
        if "catalogue" in args.suite:
            rows = [("evaluate", *run("catalogue", "graph", args))]
            title = f"{args.queries} queries among {CATALOGUE:,} candidates"
            title += f", towers of {args.layers} layers of 1,024"
            yield table(rows, title, (CHANGED, UNCHANGED, ENCODING))
        if "top_k" in args.suite:
            title = f"The {args.k} best of {args.candidates:,} for {args.queries} queries"
            rows = [("top-k, graph", *run("top_k", "graph", args))]
            yield table(rows, f"{title}, d = {args.width}")

    harness.show(tables(), args)


if __name__ == "__main__":
    main()
