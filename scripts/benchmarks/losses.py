"""Time and memory of the losses, as ratios to softmax cross-entropy of the same run.

    python -m scripts.benchmarks.losses --shapes 64x1000 --losses approx_ndcg tfr_approx_ndcg

Every loss, forward pass and gradient, runs in a separate process and alternates with
`tf.nn.sparse_softmax_cross_entropy_with_logits`. The best time of each is reported, so other work
on the machine affects both equally. Memory is measured in a second process, whose allocator returns
freed memory to the system: it is the growth of the resident set during one call. It includes the
gradient but not the scores. A peer that exceeds `--memory-limit` or `--time-limit` is reported as
such.

To add a loss, add a row to `CASES`.
"""

import dataclasses
import os
from collections.abc import Callable

from scripts.benchmarks import harness


def ours(identifier, **kwargs):
    """A loss of this package, by name; an argument that is a function is called first."""

    def make(**of_run):
        from rank4class_tf import losses

        arguments = {name: x() if callable(x) else x for name, x in kwargs.items()}
        return losses.get(identifier, **arguments, **of_run)

    return make


def tf_ranking(name, **kwargs):
    """A loss of TF-Ranking; it needs Keras 2."""

    def make():
        from rank4class_tf import tfr

        return getattr(tfr.load().keras.losses, name)(**kwargs)

    return make


def weights(name, *args):
    """Weights of ordered negatives."""

    def make():
        from rank4class_tf import losses

        return getattr(losses, name)(*args)

    return make


def sorter(name, *args):
    """A sorter, for losses of soft ranks."""

    def make():
        from rank4class_tf import layers

        return getattr(layers, name)(*args)

    return make


def keras_hinge():
    """Keras's own form of the loss of Crammer and Singer."""
    from tensorflow import keras

    return keras.losses.CategoricalHinge()


def keras_softmax(name):
    """A softmax cross-entropy of Keras."""

    def make():
        from tensorflow import keras

        return getattr(keras.losses, name)(from_logits=True)

    return make


def keras_rs(name):
    """A loss of keras-rs."""

    def make():
        import keras_rs

        return getattr(keras_rs.losses, name)()

    return make


def naive_rankmax():
    """Rankmax with a `[batch, P, n]` tensor."""
    import tensorflow as tf

    def loss(class_ids, scores):
        own = tf.gather(scores, class_ids, batch_dims=1)
        above = tf.nn.relu((scores[:, tf.newaxis] - own[..., tf.newaxis]) + 1)
        return tf.reduce_mean(tf.reduce_sum(tf.math.log(tf.reduce_sum(above, -1)), -1))

    return loss


def entmax_sparsemax():
    """The Sparsemax loss of entmax, in PyTorch, as a step."""
    import entmax
    import torch

    # As many threads as TensorFlow may use.
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    loss = entmax.SparsemaxLoss(reduction="elementwise_mean")

    def step(ids, scores):
        ids, scores = torch.tensor(ids[:, 0]).long(), torch.tensor(scores, requires_grad=True)
        return lambda: torch.autograd.grad(loss(scores, ids), scores)

    return step


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of the table.

    Attributes:
        make: builds the loss; for a loss of ours, it takes `max_positives`.
        peer_of: for a peer, the name of our row that it is compared with.
        labels: what a peer takes, "ids" for class ids or "relevance" for labels `[batch, n]`.
        keras_2: whether the process must run Keras 2.
        samples: the times are divided by this number.
        is_step: whether `make` builds a step and not a loss: a function of arrays that returns the
            call to time, forward and gradient.
    """

    make: Callable
    peer_of: str | None = None
    labels: str = "ids"
    keras_2: bool = False
    samples: int = 1
    is_step: bool = False


def tfr_case(name, peer_of, samples=1, **kwargs):
    """A row for a loss of TF-Ranking."""
    make = tf_ranking(name, **kwargs)
    return Case(make, peer_of, labels="relevance", keras_2=True, samples=samples)


def keras_rs_case(name, peer_of):
    """A row for a loss of keras-rs."""
    return Case(keras_rs(name), peer_of, labels="relevance")


CASES = {
    "softmax": Case(ours("softmax_loss")),
    "pairwise_logistic": Case(ours("pairwise_logistic_loss")),
    "pairwise_hinge": Case(ours("pairwise_hinge_loss")),
    "approx_ndcg": Case(ours("approx_ndcg_loss")),
    "approx_ndcg_laplace": Case(ours("approx_ndcg_loss", ranker=sorter("LaplaceSorter", 0.1))),
    "approx_mrr": Case(ours("approx_mrr_loss")),
    "gumbel_approx_ndcg": Case(ours("gumbel_approx_ndcg_loss", num_samples=8), samples=8),
    "list_mle": Case(ours("list_mle_loss")),
    "unique_softmax": Case(ours("unique_softmax_loss")),
    "mean_squared": Case(ours("mean_squared_loss")),
    "rankmax": Case(ours("rankmax_loss")),
    "rankmax_10": Case(ours("rankmax_loss", k=10)),
    "sparsemax": Case(ours("sparsemax_loss")),
    "rankmax_of_all_items": Case(ours("rankmax_loss"), "rankmax", labels="relevance"),
    "naive_rankmax": Case(naive_rankmax, "rankmax"),
    "entmax_sparsemax": Case(entmax_sparsemax, "sparsemax", is_step=True),
    "crammer_singer": Case(ours("ordered_weighted_loss", rank_weights=weights("TopKWeights", 1))),
    "top_16_svm": Case(ours("ordered_weighted_loss", rank_weights=weights("TopKWeights", 16))),
    "weston_watkins": Case(ours("ordered_weighted_loss", rank_weights=weights("UniformWeights"))),
    "power_law_svm": Case(ours("ordered_weighted_loss", rank_weights=weights("PowerLawWeights"))),
    "lee": Case(
        ours("ordered_weighted_loss", kind="binary", rank_weights=weights("UniformWeights"))
    ),
    "snm_64": Case(ours("stochastic_negative_mining_loss", num_sampled=64)),
    "warp": Case(ours("warp_loss")),
    "warp_sampled": Case(ours("warp_loss", num_trials=64)),
    "keras_softmax": Case(keras_softmax("SparseCategoricalCrossentropy"), "softmax"),
    "keras_softmax_one_hot": Case(
        keras_softmax("CategoricalCrossentropy"), "softmax", labels="relevance"
    ),
    "tfr_softmax": tfr_case("SoftmaxLoss", "softmax"),
    "tfr_pairwise_logistic": tfr_case("PairwiseLogisticLoss", "pairwise_logistic"),
    "tfr_pairwise_hinge": tfr_case("PairwiseHingeLoss", "pairwise_hinge"),
    "tfr_approx_ndcg": tfr_case("ApproxNDCGLoss", "approx_ndcg"),
    "tfr_approx_mrr": tfr_case("ApproxMRRLoss", "approx_mrr"),
    "tfr_gumbel_approx_ndcg": tfr_case(
        "GumbelApproxNDCGLoss", "gumbel_approx_ndcg", samples=8, sample_size=8
    ),
    "tfr_list_mle": tfr_case("ListMLELoss", "list_mle"),
    "tfr_unique_softmax": tfr_case("UniqueSoftmaxLoss", "unique_softmax"),
    "tfr_mean_squared": tfr_case("MeanSquaredLoss", "mean_squared"),
    "keras_crammer_singer": Case(keras_hinge, "crammer_singer", labels="relevance"),
    "keras_rs_pairwise_logistic": keras_rs_case("PairwiseLogisticLoss", "pairwise_logistic"),
    "keras_rs_pairwise_hinge": keras_rs_case("PairwiseHingeLoss", "pairwise_hinge"),
    "keras_rs_list_mle": keras_rs_case("ListMLELoss", "list_mle"),
}


def measure(case, batch, n, args):
    """The best times of a loss and of softmax, or the memory of the loss, in this process."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    scores = tf.constant(rng.normal(size=(batch, n)), tf.float32)
    ids = np.argsort(rng.random((batch, n)), axis=1)[:, : args.positives].astype(np.int32)
    is_ours = case.peer_of is None
    kind = args.labels if is_ours or args.labels == "graded" else case.labels
    if kind == "graded":
        # The shares of the grades 0 to 4 in MSLR-WEB30K.
        labels = rng.choice(5, (batch, n), p=[0.515, 0.325, 0.134, 0.019, 0.007])
        labels = labels.astype(np.float32)
    elif kind == "relevance":
        labels = np.zeros((batch, n), np.float32)
        np.put_along_axis(labels, ids, 1, axis=1)
    else:
        labels = ids
    labels = tf.constant(labels)
    first_ids = tf.constant(ids[:, 0])
    loss = case.make(max_positives=args.max_positives) if is_ours else case.make()

    def softmax(labels, scores):
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
        return tf.reduce_mean(losses)

    def compiled(function, labels, jit_compile):
        def step(labels, scores):
            with tf.GradientTape() as tape:
                tape.watch(scores)
                value = function(labels, scores)
            return value, tape.gradient(value, scores)

        return harness.compiled(step, labels, scores, jit_compile=jit_compile)

    def calls(jit_compile):
        if case.is_step and jit_compile:
            return None
        return [
            lambda: (
                loss(ids, scores.numpy()) if case.is_step else compiled(loss, labels, jit_compile)
            ),
            lambda: compiled(softmax, first_ids, jit_compile),
        ]

    return harness.by_mode(calls, args, ("", "_softmax"))


def run(name, shape, args):
    """Measures one case: time and memory, each in a process of its own."""
    arguments = ["--losses", name, "--shapes", harness.shape_text(shape)]
    arguments += harness.options(
        args, "positives", "labels", "max_positives", "seconds", "memory_limit"
    )
    environment = {"TF_USE_LEGACY_KERAS": "1"} if CASES[name].keras_2 else {}
    return harness.time_and_memory(__spec__.name, arguments, environment, args.time_limit)


def ratio(result, mode, samples):
    """The time over softmax's time, or None."""
    if isinstance(result.get(mode), float):
        return result[mode] / samples / result[f"{mode}_softmax"]
    return None


def cell(result, mode, samples):
    """A time as text."""
    value = ratio(result, mode, samples)
    return result.get("error", result.get(mode, "")) if value is None else f"{value:.2f}"


def table(batch, n, results):
    """The Markdown table of one shape."""
    head = ["loss", "graph ÷ softmax", "XLA ÷ softmax", "graph MB", "XLA MB"]
    head += ["ours faster, graph", "XLA"]
    rows = []
    for name, result in results.items():
        case = CASES[name]
        label = name if case.samples == 1 else f"{name} (per sample of {case.samples})"
        cells = [cell(result, mode, case.samples) for mode in harness.MODES]
        cells += [harness.number(result.get(f"{mode}_memory"), digits=0) for mode in harness.MODES]
        own = results.get(case.peer_of, {})
        for mode in harness.MODES:
            ours = ratio(own, mode, 1)
            cells.append(harness.quotient(ratio(result, mode, 1), ours, 1))
        rows.append([label, *cells])
    return harness.Table(head, rows, f"{batch} × {n}")


def parse_args(argv=None):
    """The command line."""
    parser = harness.parser(__spec__, __doc__)
    harness.add_cases(parser, "--losses", "loss", CASES, ["time", "memory"])
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=harness.shape_of(2),
        default=[(32, 28), (64, 1000), (256, 10_000), (32, 100_000)],
        help="batch x n",
    )
    parser.add_argument("--positives", type=int, default=1, help="number of positives per list")
    parser.add_argument(
        "--labels",
        choices=["ids", "relevance", "graded"],
        default="ids",
        help="labels for our losses: class ids, or relevance 0 or 1 of all items; graded: grades "
        "from 0 to 4, for peers too",
    )
    parser.add_argument(
        "--max-positives", type=int, help="`max_positives` of our losses for relevance labels"
    )
    return parser.parse_args(argv)


def main(argv=None):
    """Prints the tables."""
    args = parse_args(argv)
    if args.child:
        case, shape = CASES[args.losses[0]], args.shapes[0]
        harness.answer(lambda: measure(case, *shape, args), args.memory_limit)
        return
    tables = (
        table(*shape, {name: run(name, shape, args) for name in args.losses})
        for shape in args.shapes
    )
    harness.show(tables, args)


if __name__ == "__main__":
    main()
