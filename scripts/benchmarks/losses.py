"""Time and memory of the losses, as ratios to softmax cross-entropy of the same run.

    python -m scripts.benchmarks.losses --losses approx_ndcg tfr_approx_ndcg

Every loss, forward pass and gradient, runs in a separate process and alternates with
`tf.nn.sparse_softmax_cross_entropy_with_logits`. The best time of each is reported, so
other work on the machine affects both equally. Memory is measured in a second process,
whose allocator returns freed memory to the system: it is the growth of the resident set
during one call. It includes the gradient but not the scores. A peer that exceeds
`--memory-limit` or `--time-limit` is reported as such. To add a loss, add a row to
`CASES`.

A loss takes half a minute at each shape, so all of them take more than an hour.
`--quick` times two losses on short lists.
"""

import dataclasses
import functools
from collections.abc import Callable

from scripts import command_line
from scripts.benchmarks import harness


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of the table.

    Attributes:
        make: builds the loss; for a loss of ours, it takes `max_positives`.
        peer_of: for a peer, the name of our row that it is compared with.
        labels: what a peer takes, "ids" for class ids or "relevance" for labels
            `[batch, n]`.
        keras_2: whether the process must run Keras 2.
        samples: the times are divided by this number.
    """

    make: Callable
    peer_of: str | None = None
    labels: str = "ids"
    keras_2: bool = False
    samples: int = 1


def ours(identifier, samples=1, ranker=None, **kwargs):
    """A loss of this package."""

    def make(max_positives=None):
        from rank4class_tf import layers, losses

        options = (
            {"ranker": layers.get_sorter(ranker, temperature=0.1)} if ranker else kwargs
        )
        return losses.get(f"{identifier}_loss", **options, max_positives=max_positives)

    return Case(make, samples=samples)


def of_keras(peer_of, name, labels="ids", **kwargs):
    """A loss of Keras."""

    def make():
        from tensorflow import keras

        return getattr(keras.losses, name)(**kwargs)

    return Case(make, peer_of, labels)


def class_name(name):
    """A loss's class in TF-Ranking and keras-rs: "approx_ndcg" -> "ApproxNDCGLoss"."""
    short = {"ndcg": "NDCG", "mrr": "MRR", "mle": "MLE", "mse": "MSE"}
    words = name.replace("pairwise_mean_squared", "pairwise_mse").split("_")
    return "".join(short.get(word, word.capitalize()) for word in words) + "Loss"


def tf_ranking(name, samples=1, **kwargs):
    """A loss of TF-Ranking; it needs Keras 2."""

    def make():
        from rank4class_tf import tfr

        return getattr(tfr.load().keras.losses, class_name(name))(**kwargs)

    return Case(make, name, "relevance", keras_2=True, samples=samples)


def keras_rs(name):
    """A loss of keras-rs."""

    def make():
        import keras_rs

        return getattr(keras_rs.losses, class_name(name))()

    return Case(make, name, "relevance")


def naive_rankmax():
    """Rankmax with a `[batch, P, n]` tensor."""
    import tensorflow as tf

    def loss(class_ids, scores):
        own = tf.gather(scores, class_ids, batch_dims=1)
        above = tf.nn.relu((scores[:, tf.newaxis] - own[..., tf.newaxis]) + 1)
        return tf.reduce_mean(tf.reduce_sum(tf.math.log(tf.reduce_sum(above, -1)), -1))

    return loss


SOFTMAX = "TensorFlow's softmax"
OURS = (
    "softmax pairwise_logistic pairwise_hinge pairwise_soft_zero_one "
    "pairwise_mean_squared sigmoid_cross_entropy approx_ndcg approx_mrr list_mle "
    "unique_softmax mean_squared rankmax sparsemax ordered_weighted warp"
)
OF_TF_RANKING = (
    "softmax pairwise_logistic pairwise_hinge approx_ndcg approx_mrr list_mle "
    "unique_softmax mean_squared sigmoid_cross_entropy pairwise_soft_zero_one "
    "pairwise_mean_squared"
)
CASES = {name: ours(name) for name in OURS.split()} | {
    "approx_ndcg_laplace": ours("approx_ndcg", ranker="laplace"),
    "gumbel_approx_ndcg": ours("gumbel_approx_ndcg", samples=8, num_samples=8),
    "rankmax_10": ours("rankmax", k=10),
    "rankmax_of_all_items": dataclasses.replace(
        ours("rankmax"), peer_of="rankmax", labels="relevance"
    ),
    "naive_rankmax": Case(naive_rankmax, "rankmax"),
    "snm_64": ours("stochastic_negative_mining", num_sampled=64),
    "keras_softmax": of_keras(
        "softmax", "SparseCategoricalCrossentropy", from_logits=True
    ),
    "keras_softmax_one_hot": of_keras(
        "softmax", "CategoricalCrossentropy", "relevance", from_logits=True
    ),
    "tfr_gumbel_approx_ndcg": tf_ranking(
        "gumbel_approx_ndcg", samples=8, sample_size=8
    ),
}
CASES |= {f"tfr_{name}": tf_ranking(name) for name in OF_TF_RANKING.split()}
for _name in ("pairwise_logistic", "pairwise_hinge", "list_mle"):
    CASES[f"keras_rs_{_name}"] = keras_rs(_name)


def measure(what, name, shape, labels, positives, max_positives, seconds):
    """Best times of a loss and of softmax, or the loss's memory, in this process."""
    import numpy as np
    import tensorflow as tf

    case = CASES[name]
    rng = np.random.default_rng(0)
    scores = tf.constant(rng.normal(size=shape), tf.float32)
    ids = np.argsort(rng.random(shape), axis=1)[:, :positives].astype(np.int32)
    is_ours = case.peer_of is None
    kind = labels if is_ours or labels == "graded" else case.labels
    of_loss = tf.constant(labels_of(kind, ids, shape, rng))
    first_ids = tf.constant(ids[:, 0])
    loss = case.make(max_positives=max_positives) if is_ours else case.make()

    def softmax(labels, scores):
        values = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
        return tf.reduce_mean(values)

    def compiled(function, labels, jit_compile):
        def step(labels, scores):
            with tf.GradientTape() as tape:
                tape.watch(scores)
                value = function(labels, scores)
            return value, tape.gradient(value, scores)

        return harness.compiled(step, labels, scores, jit_compile=jit_compile)

    def calls(jit_compile):
        return {
            harness.CASE: functools.partial(compiled, loss, of_loss, jit_compile),
            SOFTMAX: functools.partial(compiled, softmax, first_ids, jit_compile),
        }

    return harness.by_mode(calls, what, seconds)


def labels_of(kind, ids, shape, rng):
    """Labels of a kind: the ids, 1 for each of them, or random grades."""
    import numpy as np

    if kind == "graded":
        # The shares of the grades 0 to 4 in MSLR-WEB30K.
        shares = [0.515, 0.325, 0.134, 0.019, 0.007]
        return rng.choice(5, shape, p=shares).astype(np.float32)
    if kind == "relevance":
        relevance = np.zeros(shape, np.float32)
        np.put_along_axis(relevance, ids, 1, axis=1)
        return relevance
    return ids


def ratio(found, mode, samples=1):
    """The time over softmax's time, or why there is none."""
    seconds = found.seconds(mode)
    if isinstance(seconds, str):
        return seconds
    return seconds / samples / found.seconds(mode, SOFTMAX)


def table(shape, results):
    """The table of one shape."""
    head = [
        "loss",
        "graph ÷ softmax",
        "XLA ÷ softmax",
        "graph MB",
        "XLA MB",
        "graph ÷ ours",
        "XLA ÷ ours",
    ]
    rows = []
    for name, found in results.items():
        case = CASES[name]
        own = results.get(case.peer_of, harness.Figures({}, {}))
        row = [name if case.samples == 1 else f"{name} (per sample of {case.samples})"]
        for mode in harness.MODES:
            row.append(harness.number(ratio(found, mode, case.samples), digits=2))
        row += found.megabytes()
        for mode in harness.MODES:
            row.append(harness.quotient(ratio(found, mode), ratio(own, mode), 1))
        rows.append(row)
    return harness.Table("{} × {}".format(*shape), head, rows)


def parser():
    """The command line."""
    quick = {"losses": ["softmax", "approx_ndcg"], "shapes": [(32, 28)], "seconds": 0.1}
    result = harness.parser(__spec__, __doc__, quick)
    result.add_names("--losses", CASES, "rows")
    shapes = [(32, 28), (64, 1000), (256, 10_000), (32, 100_000)]
    harness.add_shapes(result, "batch x n", shapes)
    result.add_value("--positives", int, 1, "number of positives per list")
    forms = ["ids", "relevance", "graded"]
    labels = "labels for our losses; graded: 0 to 4 for all items, for peers too"
    result.add_argument("--labels", choices=forms, default="ids", help=labels)
    result.add_value("--max-positives", int, None, "`max_positives` of our losses")
    return result


def measured(args):
    """Yields the table of each shape."""
    options = command_line.chosen(args, "labels", "positives", "max_positives")
    for shape in args.shapes:
        results = {}
        for name in args.losses:
            environment = {"TF_USE_LEGACY_KERAS": "1"} if CASES[name].keras_2 else {}
            results[name] = harness.time_and_memory(
                __spec__.name, args, environment, name=name, shape=shape, **options
            )
        yield table(shape, results)


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
