"""Time and memory of losses over all classes, computed in blocks and on the whole matrix.

    taskset -c 0 python -m scripts.benchmarks.all_classes

The plain form is the same loss on the matrix of scores, `[batch, K]`. Both compute the value and
the gradients of encodings and classes in graph mode. Each example has `--positives` labels. Its
encoding lies near the rows of its classes, as in a trained model, or, with `--untrained`, far from
them, so that the gradient of a hinge has no zeros.
"""

import argparse

from scripts.benchmarks import harness

OURS, PLAIN = "by blocks", "plain"
CLASSES = (13_330, 100_000, 849_000)


def losses():
    """The losses by name."""
    from rank4class_tf import losses as L
    from rank4class_tf import ops

    return {
        "softmax": L.SoftmaxLoss(0.1),
        "Rankmax": L.RankmaxLoss(margin=0.3),
        "Rankmax, k = 5": L.RankmaxLoss(k=5, margin=0.3),
        "Sparsemax": L.FenchelYoungLoss(alpha=10.0),
        "top-10 OWL": L.OrderedWeightedLoss("pairwise", "hinge", ops.TopKWeights(10)),
        "pairwise logistic": L.PairwiseLogisticLoss(),
        "pairwise hinge": L.PairwiseHingeLoss(margin=0.3),
        "WARP": L.WARPLoss(margin=0.3),
        "ListMLE": L.ListMLELoss(),
        "ApproxNDCG": L.ApproxNDCGLoss(),
        "lambda weights": L.PairwiseLogisticLoss(lambda_weights=L.NDCGLambdaWeights()),
    }


NAMES = (
    *("softmax", "Rankmax", "Rankmax, k = 5", "Sparsemax", "top-10 OWL", "pairwise logistic"),
    *("pairwise hinge", "WARP", "ListMLE", "ApproxNDCG", "lambda weights"),
)


def measure(args):
    """Times, or memory, of both forms of a loss, in this process."""
    import tensorflow as tf

    from rank4class_tf import layers

    loss, classes = losses()[args.loss[0]], args.classes[0]
    tf.random.set_seed(0)
    head = layers.SampledScores(classes, seed=0)
    head.build((None, args.width))
    ids = tf.random.uniform([args.batch, args.positives], 0, classes, tf.int32)
    encodings = tf.math.l2_normalize(tf.random.normal([args.batch, args.width]), axis=1)
    if not args.untrained:
        rows = tf.reduce_sum(head.classes.rows(ids), axis=1)
        encodings = 4 * tf.math.l2_normalize(rows, axis=1) + encodings
    signature = None
    if args.padded:
        number = tf.random.uniform([args.batch, 1], 1, args.positives + 1, tf.int32)
        ids = tf.where(tf.range(args.positives) < number, ids, -1)
        signature = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, args.width])]

    def call(name):
        def step(ids, encodings):
            table = head.classes.trainable_variables
            with tf.GradientTape() as tape:
                tape.watch(encodings)
                scores = head(encodings) if name == PLAIN else head.over_classes(encodings)
                value = loss(ids, scores)
            gradients = tape.gradient(value, [encodings, *(getattr(v, "value", v) for v in table)])
            return value, *gradients

        run = tf.function(step, signature).get_concrete_function(
            *(() if signature else (ids, encodings))
        )
        return lambda: run(ids, encodings)[0].numpy()

    names = (OURS, PLAIN)
    if args.child == "memory":
        return {args.form: harness.memory_of(call(args.form))}
    return dict(zip(names, harness.best_times([call(x) for x in names], args.seconds), strict=True))


def run(loss, classes, args):
    """The cells of a row."""
    options = harness.options(args, "batch", "width", "positives", "seconds")
    options += ["--loss", loss, "--classes", classes, *["--untrained"] * args.untrained]
    options += ["--padded"] * args.padded
    times = harness.in_process(__spec__.name, ["--child", "time", *options], None, args.time_limit)
    memory = {}
    for name in (OURS, PLAIN):
        child = ["--child", "memory", "--form", name, *options]
        memory |= harness.in_process(__spec__.name, child, harness.RETURN_MEMORY, args.time_limit)
    return [
        loss,
        f"{classes:,}",
        harness.number(times.get(OURS, times.get("error")), 1e3),
        harness.quotient(times.get(OURS), times.get(PLAIN)),
        harness.number(memory.get(OURS, memory.get("error")), digits=0),
        harness.quotient(memory.get(OURS), memory.get(PLAIN), digits=3),
    ]


def parse_args(argv=None):
    """The command line."""
    parser = harness.parser(__spec__, __doc__)
    harness.add_cases(parser, "--loss", "loss", NAMES, ("time", "memory"), 600.0, 12.0)
    parser.add_argument("--classes", type=int, nargs="+", default=list(CLASSES))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--positives", type=int, default=1, help="labels per example")
    parser.add_argument(
        "--padded",
        action="store_true",
        help="draw 1 to --positives labels per example; the graph does not know the number",
    )
    parser.add_argument(
        "--untrained", action="store_true", help="use encodings far from their class"
    )
    parser.add_argument("--form", choices=(OURS, PLAIN), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None):
    """Prints a table."""
    args = parse_args(argv)
    if args.child:
        harness.answer(lambda: measure(args), args.memory_limit)
        return

    def tables():
        head = ["loss", "classes", "ms", "over plain", "MB more", "over plain"]
        rows = [run(loss, n, args) for n in args.classes for loss in args.loss]
        state = "untrained" if args.untrained else "trained"
        labels = f"{'1 to ' * args.padded}{args.positives} labels"
        title = f"{args.batch} examples of {labels}, d = {args.width}, {state}"
        yield harness.Table(head, rows, title, 4)

    harness.show(tables(), args)


if __name__ == "__main__":
    main()
