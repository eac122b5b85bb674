"""Time and memory of training with many classes: losses over all, and sampled steps.

    taskset -c 0 python -m scripts.benchmarks.many_classes --suite blocks
    python -m scripts.benchmarks.many_classes --suite step --threads 1 --steps 200

Suites:

- `blocks`: the value and the gradients of a loss over all classes, by blocks, compared
  with the same loss on the matrix of scores, `[batch, K]`, in graph mode. Each example
  has `--positives` labels; its encoding lies near the rows of its classes, as in a
  trained model.
- `step`: a step of `fit` with `--sampled` classes, compared with
  `tf.nn.sampled_softmax_loss` in a Keras model and, for few classes, with softmax over
  all. The models have the same encoder and the same row-wise optimizer; `top_k` is
  stochastic negative mining with the k highest of the sample.

Each row runs in a process of its own. In it the models alternate, and the best time of
each counts. Everything takes three hours, most of it losses with 849,000 classes.
`--quick` measures one loss, and steps with few classes.
"""

import functools
import itertools

from scripts import command_line
from scripts.benchmarks import harness

OURS, PLAIN = "by blocks", "plain"
FEATURES = 64
# Above this K, a full step takes longer than all others together.
FULL_SOFTMAX_LIMIT = 13_330
MODELS = ("top_1", "top_16", "sampled_softmax", "full_softmax")


# The losses of `blocks`, of the modules with losses and with their parts.
LOSSES = {
    "softmax": lambda losses, ops: losses.SoftmaxLoss(0.1),
    "Rankmax": lambda losses, ops: losses.RankmaxLoss(margin=0.3),
    "Rankmax, k = 5": lambda losses, ops: losses.RankmaxLoss(k=5, margin=0.3),
    "Sparsemax": lambda losses, ops: losses.FenchelYoungLoss(alpha=10.0),
    "top-10 OWL": lambda losses, ops: losses.OrderedWeightedLoss(
        "pairwise", "hinge", ops.TopKWeights(10)
    ),
    "pairwise logistic": lambda losses, ops: losses.PairwiseLogisticLoss(),
    "pairwise hinge": lambda losses, ops: losses.PairwiseHingeLoss(margin=0.3),
    "WARP": lambda losses, ops: losses.WARPLoss(margin=0.3),
    "ListMLE": lambda losses, ops: losses.ListMLELoss(),
    "ApproxNDCG": lambda losses, ops: losses.ApproxNDCGLoss(),
    "lambda weights": lambda losses, ops: losses.PairwiseLogisticLoss(
        lambda_weights=ops.NDCGLambdaWeights()
    ),
}


def blocks(what, loss, classes, batch, width, positives, padded, seconds):
    """Times of both forms of a loss, or memory of the form `what`, in this process."""
    import tensorflow as tf

    from rank4class_tf import layers, losses, ops

    tf.random.set_seed(0)
    head = layers.SampledScores(classes, seed=0)
    head.build((None, width))
    ids = tf.random.uniform([batch, positives], 0, classes, tf.int32)
    encodings = near_rows(head, ids, width)
    signature = None
    if padded:
        number = tf.random.uniform([batch, 1], 1, positives + 1, tf.int32)
        ids = tf.where(tf.range(positives) < number, ids, -1)
        of_ids = tf.TensorSpec([None, None], tf.int32)
        signature = [of_ids, tf.TensorSpec([None, width])]
    loss = LOSSES[loss](losses, ops)

    def call(form):
        step = tf.function(gradients_of(loss, head, form), signature)
        known = () if signature else (ids, encodings)
        run = step.get_concrete_function(*known)
        return lambda: run(ids, encodings)[0].numpy()

    if what != "time":
        return {what: harness.memory_of(call(what))}
    forms = (OURS, PLAIN)
    times = harness.best_times([call(form) for form in forms], seconds)
    return dict(zip(forms, times, strict=True))


def near_rows(head, ids, width):
    """Encodings near the rows of their classes, as in a trained model."""
    import tensorflow as tf

    encodings = tf.random.normal([len(ids), width])
    encodings = tf.math.l2_normalize(encodings, axis=1)
    rows = tf.reduce_sum(head.classes.rows(ids), axis=1)
    return 4 * tf.math.l2_normalize(rows, axis=1) + encodings


def gradients_of(loss, head, form):
    """A function of ids and encodings to a loss of a form, and to its gradients."""
    import tensorflow as tf

    score = head if form == PLAIN else head.over_classes
    table = [getattr(v, "value", v) for v in head.classes.trainable_variables]

    def step(ids, encodings):
        with tf.GradientTape() as tape:
            tape.watch(encodings)
            value = loss(ids, score(encodings))
        return value, *tape.gradient(value, [encodings, *table])

    return step


def peer(encoder, classes, width, sampled):
    """A Keras model with TensorFlow's sampled softmax, or softmax over all classes."""
    import tensorflow as tf
    from tensorflow import keras

    class Softmax(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder = encoder
            self.table = tf.Variable(tf.random.normal([classes, width]) / width**0.5)
            self.offsets = tf.Variable(tf.zeros([classes]), trainable=False)

        def call(self, inputs):
            return self.encoder(inputs)

        def train_step(self, data):
            inputs, labels = data
            with tf.GradientTape() as tape:
                encodings = tf.math.l2_normalize(self(inputs, training=True), axis=1)
                if sampled:
                    value = tf.nn.sampled_softmax_loss(
                        self.table, self.offsets, labels, encodings, sampled, classes
                    )
                else:
                    scores = tf.matmul(encodings, self.table, transpose_b=True)
                    value = tf.nn.sparse_softmax_cross_entropy_with_logits(
                        labels[:, 0], scores
                    )
                value = tf.reduce_mean(value)
            weights = [*self.encoder.trainable_variables, self.table]
            self.optimizer.apply_gradients(
                zip(tape.gradient(value, weights), weights, strict=True)
            )
            return {"loss": value}

    return Softmax()


def model_of(name, classes, width, sampled):
    """A compiled model of `MODELS`."""
    from tensorflow import keras

    from rank4class_tf import losses, metrics, models, ops, optimizers

    inputs = keras.layers.Input((FEATURES,))
    encoder = keras.Sequential([inputs, keras.layers.Dense(width)])
    optimizer = optimizers.RowwiseSGD(0.1)
    if not name.startswith("top_"):
        model = peer(
            encoder, classes, width, sampled if name == "sampled_softmax" else None
        )
        model.compile(optimizer)
        return model
    model = models.ExtremeClassifier(encoder, classes, width, num_sampled=sampled)
    weights = ops.TopKWeights(int(name.removeprefix("top_")))
    loss = losses.OrderedWeightedLoss("binary", "hinge", weights)
    model.compile(optimizer, loss, metrics=[metrics.PrecisionAtK([1, 3, 5])])
    return model


def step(models, classes, batch, width, sampled, steps, seconds):
    """The best seconds of each model's step, and peak memory, in this process."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    features = rng.normal(size=(batch, FEATURES)).astype(np.float32)
    class_ids = rng.integers(0, classes, (batch, 1))
    batches = tf.data.Dataset.from_tensors((features, class_ids)).repeat(steps)
    if classes > FULL_SOFTMAX_LIMIT:
        models = [name for name in models if name != "full_softmax"]
    calls = []
    for name in models:
        model = model_of(name, classes, width, sampled)
        calls.append(functools.partial(model.fit, batches, verbose=0))
    times = harness.best_times(calls, seconds)
    found = {name: taken / steps for name, taken in zip(models, times, strict=True)}
    return found | {"GB": harness.memory_status("VmHWM") / 1e9}


def measure(suite, **settings):
    """The figures of a row, in this process."""
    return (blocks if suite == "blocks" else step)(**settings)


def parser():
    """The command line."""
    quick = {
        "classes": [500],
        "losses": ["Rankmax"],
        "seconds": 0.1,
        "steps": 2,
        "sampled": 50,
    }
    result = harness.parser(
        __spec__, __doc__, quick, 4.0, time_limit=600.0, memory_limit=24.0
    )
    add = result.add_value
    result.add_names("--suite", ["blocks", "step"], "tables")
    result.add_values("--classes", int, [13_330, 100_000, 849_000], "how many")
    add("--batch", int, 256, "examples a step")
    add("--width", int, 64, "width of encodings and rows")
    result.add_names("--losses", LOSSES, "rows of blocks")
    add("--positives", int, 1, "labels per example, for blocks")
    padded = "1 to --positives labels per example; the graph does not know the number"
    result.add_argument("--padded", action="store_true", help=padded)
    result.add_names("--models", MODELS, "columns of step")
    add("--sampled", int, 1024, "sampled classes of a step")
    add("--steps", int, 20, "number of steps of a fit")
    add("--threads", int, None, "threads of TensorFlow")
    return result


def measured(args):
    """Yields the table of each suite."""
    threads = {}
    if args.threads:
        for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
            threads[name] = str(args.threads)

    def run(suite, classes, environment=None, **settings):
        settings |= {"batch": args.batch, "width": args.width, "classes": classes}
        environment = threads | (environment or {})
        return harness.run(__spec__.name, args, environment, suite=suite, **settings)

    if "blocks" in args.suite:
        yield table_of_blocks(run, args)
    if "step" in args.suite:
        yield table_of_steps(run, args)


def table_of_blocks(run, args):
    """Each loss by blocks beside its plain form: times, and memory."""
    rows = []
    for n, loss in itertools.product(args.classes, args.losses):
        of_row = {"loss": loss, "positives": args.positives, "padded": args.padded}
        times = run("blocks", n, what="time", **of_row)
        memory = {}
        for form in (OURS, PLAIN):
            memory |= run("blocks", n, harness.RETURN_MEMORY, what=form, **of_row)
        rows.append(
            [
                loss,
                f"{n:,}",
                harness.number(times.get(OURS, times.get("error")), 1e3),
                harness.quotient(times.get(OURS), times.get(PLAIN)),
                harness.number(memory.get(OURS, memory.get("error")), digits=0),
                harness.quotient(memory.get(OURS), memory.get(PLAIN), 3),
            ]
        )
    labels = f"{'1 to ' * args.padded}{args.positives} labels"
    title = f"{args.batch} examples of {labels}, d = {args.width}"
    head = ["loss", "classes", "ms", "over plain", "MB more", "over plain"]
    return harness.Table(title, head, rows, 4)


def table_of_steps(run, args):
    """Each model's step in `fit`, and the peak memory of all."""
    settings = command_line.chosen(args, "models", "sampled", "steps")
    compared = [name for name in args.models if name.startswith("top")]
    rows = []
    for n in args.classes:
        found = run("step", n, **settings)
        softmax = found.get("sampled_softmax")
        times = [found.get(name, found.get("error")) for name in args.models]
        quotients = [harness.quotient(found.get(name), softmax) for name in compared]
        cells = [f"{n:,}", *(harness.number(time, 1e3) for time in times), *quotients]
        rows.append([*cells, harness.number(found.get("GB"))])
    head = [
        "classes",
        *(f"{name}, ms" for name in args.models),
        *(f"{name} ÷ sampled softmax" for name in compared),
        "peak GB",
    ]
    title = f"A step of {args.batch} examples, B = {args.sampled:,}, d = {args.width}"
    return harness.Table(title, head, rows, len(head) - 1)


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
