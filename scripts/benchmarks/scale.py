"""Step time and memory of an extreme classifier for several numbers of classes.

    python -m scripts.benchmarks.scale --suite classes --threads 1

Suites:

- `classes`: the numbers of classes K of the paper's four datasets, d = 128, batch 256, B = 1,024;
- `samples`: B = 32,768 at d = 512, for the first two;
- `memory`: 2.8 million classes of 512 numbers with Adagrad;
- `evaluation`: streaming evaluation over 2.8 million classes.

Each row runs in a separate process that trains with `fit`, so its time is that of a step of `fit`.
In that process the models alternate, each with a `fit` of a few steps. The best time of each
counts, so other work on the machine affects all equally. The models have the same encoder and the
same row-wise optimizer:

- `top_k`: this package's stochastic negative mining with the k highest of B;
- `sampled_softmax`: `tf.nn.sampled_softmax_loss` in a Keras model, with TensorFlow's sampler;
- `full_softmax`: softmax over all classes, only for the smallest dataset: it takes too long for
  the others.
"""

import argparse
import json
import time

from scripts.benchmarks import harness

CLASSES = {"AmazonCat": 13_330, "WikiLSHTC": 325_056, "Amazon670K": 670_091, "Amazon3M": 2_812_281}
FEATURES = 64
FULL_SOFTMAX_LIMIT = 13_330  # above this K, a full step takes longer than all others together


def rows(suite):
    """The rows of a suite: settings of a process."""
    if suite == "classes":
        return [
            {
                "name": name,
                "classes": classes,
                "width": 128,
                "sampled": 1024,
                "mined": [1, 16],
                "peers": ["sampled_softmax"] + ["full_softmax"] * (classes <= FULL_SOFTMAX_LIMIT),
                "optimizer": "RowwiseSGD",
            }
            for name, classes in CLASSES.items()
        ]
    if suite == "samples":
        # AmazonCat has fewer classes than B, so these are the two smallest datasets with more.
        return [
            {
                "name": name,
                "classes": CLASSES[name],
                "width": 512,
                "sampled": 32_768,
                "mined": [1, 16],
                "peers": ["sampled_softmax"],
                "optimizer": "RowwiseSGD",
            }
            for name in ("WikiLSHTC", "Amazon670K")
        ]
    largest = {"name": "Amazon3M", "classes": CLASSES["Amazon3M"], "peers": [], "mined": [1]}
    if suite == "memory":
        return [largest | {"width": 512, "sampled": 1024, "optimizer": "RowwiseAdagrad"}]
    return [largest | {"width": 128, "sampled": 1024, "optimizer": "RowwiseSGD", "evaluate": True}]


def measure(row, batch, steps, turns, steps_per_execution):
    """Times and memory of one row, in this process."""
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras

    from rank4class_tf import losses, metrics, models, ops, optimizers

    classes, width, sampled = row["classes"], row["width"], row["sampled"]
    rng = np.random.default_rng(0)
    features = rng.normal(size=(batch, FEATURES)).astype(np.float32)
    class_ids = rng.integers(0, classes, (batch, 1))
    batches = tf.data.Dataset.from_tensors((features, class_ids)).repeat(steps)

    def encoder():
        return keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(width)])

    class Softmax(keras.Model):
        """The peer: the same encoder, TensorFlow's own losses."""

        def __init__(self, sampled):
            super().__init__()
            self.encoder, self.sampled = encoder(), sampled
            self.table = tf.Variable(tf.random.normal([classes, width]) / width**0.5)
            self.offsets = tf.Variable(tf.zeros([classes]), trainable=False)

        def call(self, inputs):
            return self.encoder(inputs)

        def train_step(self, data):
            inputs, labels = data
            with tf.GradientTape() as tape:
                encodings = tf.math.l2_normalize(self(inputs, training=True), axis=1)
                if self.sampled:
                    value = tf.nn.sampled_softmax_loss(
                        self.table, self.offsets, labels, encodings, self.sampled, classes
                    )
                else:
                    scores = tf.matmul(encodings, self.table, transpose_b=True)
                    value = tf.nn.sparse_softmax_cross_entropy_with_logits(labels[:, 0], scores)
                value = tf.reduce_mean(value)
            weights = [*self.encoder.trainable_variables, self.table]
            self.optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))
            return {"loss": value}

    def compiled(name):
        optimizer = getattr(optimizers, row["optimizer"])(0.1)
        if name.startswith("top_"):
            model = models.ExtremeClassifier(encoder(), classes, width, num_sampled=sampled)
            loss = losses.OrderedWeightedLoss("binary", "hinge", ops.TopKWeights(int(name[4:])))
            model.compile(
                optimizer,
                loss=loss,
                metrics=[metrics.PrecisionAtK([1, 3, 5])],
                steps_per_execution=steps_per_execution,
            )
        else:
            model = Softmax(sampled if name == "sampled_softmax" else None)
            model.compile(optimizer, steps_per_execution=steps_per_execution)
        return model

    compiled_models = {
        name: compiled(name) for name in [f"top_{k}" for k in row["mined"]] + row["peers"]
    }
    if row.get("evaluate"):
        return evaluation(next(iter(compiled_models.values())), batches.take(2))

    best = dict.fromkeys(compiled_models, float("inf"))
    for turn in range(turns + 1):
        for name, model in compiled_models.items():
            start = time.perf_counter()
            model.fit(batches, verbose=0)
            if turn:  # The first call traces.
                best[name] = min(best[name], (time.perf_counter() - start) / steps)
    return {"seconds": best, "peak_gb": memory("VmHWM")}


def evaluation(model, batches):
    """Time of a batch, and memory beyond what the model took before."""
    before = harness.reset_peak() / 1e9
    model.evaluate(batches, verbose=0)
    start = time.perf_counter()
    model.evaluate(batches, verbose=0)
    seconds = (time.perf_counter() - start) / 2
    return {"seconds": {"evaluate": seconds}, "above_table_gb": memory("VmHWM") - before}


def memory(key):
    """A figure of /proc/self/status in GB."""
    return harness.memory_status(key) / 1e9


def run(row, args):
    """Measures one row in a new process."""
    threads = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    environment = dict.fromkeys(threads, str(args.threads)) if args.threads else {}
    arguments = ["--child", json.dumps(row)]
    arguments += harness.options(args, "batch", "steps", "turns", "steps_per_execution")
    return row | harness.in_process(__spec__.name, arguments, environment)


def table(results, suite):
    """The table of a suite."""
    names = list(dict.fromkeys(n for r in results for n in r.get("seconds", {})))
    peers = [n for n in names if n.startswith("top_")]
    head = ["dataset", "K", "d", "B", *(f"{n}, ms" for n in names)]
    head += [f"{n} ÷ sampled softmax" for n in peers] + ["peak GB", "GB above the table"]
    rows = []
    for r in results:
        cells = [r["name"], f"{r['classes']:,}", str(r["width"]), f"{r['sampled']:,}"]
        seconds = r.get("seconds", {})
        cells += [f"{seconds[n] * 1e3:.1f}" if n in seconds else r.get("error", "") for n in names]
        softmax = seconds.get("sampled_softmax")
        cells += [f"{seconds[n] / softmax:.2f}" if softmax and n in seconds else "" for n in peers]
        cells += [f"{r[key]:.1f}" if key in r else "" for key in ("peak_gb", "above_table_gb")]
        rows.append(cells)
    return harness.Table(head, rows, suite, len(head) - 1)


def parse_args(argv=None):
    """The command line."""
    parser = harness.parser(__spec__, __doc__)
    suites = ["classes", "samples", "memory", "evaluation"]
    parser.add_argument("--suite", nargs="+", choices=suites, default=suites)
    parser.add_argument("--max-classes", type=int, help="leave out cases with more classes")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20, help="number of steps of a fit")
    parser.add_argument("--turns", type=int, default=5, help="number of fits of each model")
    parser.add_argument(
        "--steps-per-execution", type=int, default=1, help="steps_per_execution of compile"
    )
    parser.add_argument(
        "--threads", type=int, help="number of threads of TensorFlow; default: TensorFlow's choice"
    )
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None):
    """Prints a table for each suite."""
    args = parse_args(argv)
    if args.child:
        settings = (args.batch, args.steps, args.turns, args.steps_per_execution)
        print(json.dumps(measure(args.child, *settings)))
        return

    def tables():
        for suite in args.suite:
            chosen = [r for r in rows(suite) if r["classes"] <= (args.max_classes or r["classes"])]
            yield table([run(row, args) for row in chosen], suite)

    harness.show(tables(), args)


if __name__ == "__main__":
    main()
