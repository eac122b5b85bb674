"""Time of an update of the metrics, as ratios to Keras's top-k accuracy of the same run.

    taskset -c 0 python -m scripts.benchmarks.metrics --shapes 1024x28 1024x1000

Keras's `SparseTopKCategoricalAccuracy` stops reading a list once k scores are above the label's. It
is therefore measured twice: with random labels, where it reads a small part of the scores, and with
the label at the highest score, as for a good model, where it reads all. TF-Ranking's metrics need
Keras 2 and run in a separate process, together with Keras's metric. A peer that is not installed is
left out. All take class ids, except TF-Ranking, keras-rs and scikit-learn, which take one-hot
labels. The metrics that take one-hot labels are also measured with grades from 0 to 4 for all
items. Keras's metric does not accept grades, so those tables show it with class ids. With 20
positives per list, ids `[batch, 20]`, the peers are plain formulas, which break ties by position.
Updates run in a tf.function, except scikit-learn's. They alternate, and the best time of each is
reported, so other work on the machine hardly matters.
"""

import argparse
import functools
import importlib.metadata
import importlib.util
import json
import os
import sys

from scripts.benchmarks import harness

BASELINE = "Keras SparseTopKCategoricalAccuracy(5)"
OURS = "NDCG(5)"
OURS_OF_ALL_ITEMS = "NDCG(5), labels of all items"
OUR_MRR_OF_ALL_ITEMS = "MRR(), labels of all items"
PEERS = ("TF-Ranking", "keras-rs", "scikit-learn")
POSITIVES = 20
OF_SEVERAL = {
    "NDCG(5)": ("ndcg", {"k": 5}),
    "RecallAtK(5)": ("recall", {"k": 5}),
    "HitRate(5)": ("hit_rate", {"k": 5}),
    "MRR()": ("mrr", {}),
}
SLOW = (OURS_OF_ALL_ITEMS, OUR_MRR_OF_ALL_ITEMS, *PEERS)


def cases():
    """Name -> builder of `update(labels, of_items, scores)`; ImportError without the peer."""
    import tensorflow as tf
    from tensorflow import keras

    def compiled(metric, labels_of_items=False):
        @tf.function
        def update(labels, of_items, scores):
            metric.update_state(of_items if labels_of_items else labels, scores)

        return update

    def ours(name, labels_of_items=False, **kwargs):
        from rank4class_tf import metrics

        return compiled(metrics.get(name, **kwargs), labels_of_items)

    def tf_ranking(name, **kwargs):
        from rank4class_tf import tfr

        return compiled(getattr(tfr.load().keras.metrics, name)(**kwargs), labels_of_items=True)

    def keras_rs():
        import keras_rs

        return compiled(keras_rs.metrics.NDCG(k=5), labels_of_items=True)

    def scikit_learn():
        from sklearn.metrics import ndcg_score

        return lambda labels, of_items, scores: ndcg_score(of_items.numpy(), scores.numpy(), k=5)

    common = {
        BASELINE: lambda: compiled(keras.metrics.SparseTopKCategoricalAccuracy(5)),
        OURS: lambda: ours("ndcg", k=5),
    }
    if os.environ.get("TF_USE_LEGACY_KERAS") == "1":
        return common | {
            OURS_OF_ALL_ITEMS: lambda: ours("ndcg", labels_of_items=True, k=5),
            OUR_MRR_OF_ALL_ITEMS: lambda: ours("mrr", labels_of_items=True),
            "TF-Ranking NDCG(5)": lambda: tf_ranking("NDCGMetric", topn=5),
            "TF-Ranking MRR()": lambda: tf_ranking("MRRMetric"),
        }
    return common | {
        "TopKAccuracy(5)": lambda: ours("top_k_accuracy", k=5),
        "MRR()": lambda: ours("mrr"),
        "NDCG([1, 3, 5, 10])": lambda: ours("ndcg", k=[1, 3, 5, 10]),
        "TopKAccuracy([1, 3, 5, 10])": lambda: ours("top_k_accuracy", k=[1, 3, 5, 10]),
        OURS_OF_ALL_ITEMS: lambda: ours("ndcg", labels_of_items=True, k=5),
        "keras-rs NDCG(5)": keras_rs,
        "scikit-learn ndcg_score(5)": scikit_learn,
    }


def of_several(batch, n):
    """Name -> an update with several positives: our metric, or its plain formula."""
    import numpy as np
    import tensorflow as tf

    from rank4class_tf import metrics

    rng = np.random.default_rng(0)
    scores = tf.constant(rng.normal(size=(batch, n)), tf.float32)
    ids = tf.constant(np.argsort(rng.random((batch, n)), axis=1)[:, :POSITIVES], tf.int32)
    discounts = 1 / tf.math.log(tf.range(2.0, 7.0))

    def highest(ids, scores):
        best = tf.math.top_k(scores, 5).indices
        same = tf.equal(best[:, :, tf.newaxis], ids[:, tf.newaxis])
        return tf.cast(tf.reduce_any(same, axis=2), tf.float32)

    def mrr(ids, scores):
        best = tf.reduce_max(tf.gather(scores, ids, batch_dims=1), axis=1, keepdims=True)
        return 1 / tf.reduce_sum(tf.cast(scores >= best, tf.float32), axis=1)

    def ndcg(ids, scores):
        ideal = tf.reduce_sum(discounts)
        return tf.reduce_sum(highest(ids, scores) * discounts, axis=1) / ideal

    plain = {
        "NDCG(5)": ndcg,
        "RecallAtK(5)": lambda *x: tf.reduce_sum(highest(*x), axis=1) / POSITIVES,
        "HitRate(5)": lambda *x: tf.reduce_max(highest(*x), axis=1),
        "MRR()": mrr,
    }

    def of_plain(formula):
        total = tf.Variable(0.0)
        return tf.function(lambda *x: total.assign_add(tf.reduce_sum(formula(*x))))

    for name, (identifier, kwargs) in OF_SEVERAL.items():
        ours = tf.function(metrics.get(identifier, **kwargs).update_state)
        yield name, functools.partial(ours, ids, scores)
        yield f"plain {name}", functools.partial(of_plain(plain[name]), ids, scores)


def measure(shapes, seconds, peers_up_to):
    """Yields shape, kind of labels, name, and the seconds or why the row is left out."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    compared_with_peers = (BASELINE, OURS, OURS_OF_ALL_ITEMS, OUR_MRR_OF_ALL_ITEMS)
    for batch, n in shapes:
        scores = tf.constant(rng.normal(size=(batch, n)).astype(np.float32))
        random = tf.constant(rng.integers(0, n, batch), tf.int32)
        best = tf.argmax(scores, axis=1, output_type=tf.int32)
        graded = tf.constant(rng.integers(0, 5, (batch, n)), tf.float32)
        for kind, labels, of_items in (
            ("random", random, tf.one_hot(random, n)),
            ("best", best, tf.one_hot(best, n)),
            ("graded", random, graded),
        ):
            calls = {}
            for name, build in cases().items():
                peer = name.startswith(PEERS)
                if peer and batch * n > peers_up_to:
                    continue
                if kind == "graded" and not peer and name not in compared_with_peers:
                    continue
                try:
                    calls[name] = functools.partial(build(), labels, of_items, scores)
                except ImportError as error:
                    yield f"{batch}x{n}", kind, name, str(error)
            # A few turns are enough for slow updates.
            for slow in (False, True):
                names = [name for name in calls if name.startswith(SLOW) == slow]
                times = harness.best_times([calls[name] for name in names], seconds)
                for name, taken in zip(names, times, strict=True):
                    yield f"{batch}x{n}", kind, name, taken
        if n > POSITIVES and os.environ.get("TF_USE_LEGACY_KERAS") != "1":
            calls = dict(of_several(batch, n))
            times = harness.best_times(list(calls.values()), seconds)
            for name, taken in zip(calls, times, strict=True):
                yield f"{batch}x{n}", f"{POSITIVES} positives", name, taken


def in_process(args, legacy_keras):
    """Rows measured in a process of its own."""
    arguments = ["--worker", *harness.options(args, "seconds", "peers_up_to")]
    arguments += ["--shapes", *map(harness.shape_text, args.shapes)]
    environment = {"TF_USE_LEGACY_KERAS": str(int(legacy_keras))}
    rows = harness.in_process(__spec__.name, arguments, environment)
    if "error" in rows:
        sys.exit(rows["error"])
    for _, _, name, taken in rows:
        if isinstance(taken, str):
            print(f"{name} left out: {taken}", file=sys.stderr)
    return [row for row in rows if not isinstance(row[-1], str)]


def parse_arguments(argv):
    """The command line."""
    parser = harness.parser(__spec__, __doc__)
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=harness.shape_of(2),
        default=[(1024, 28), (1024, 1000), (1024, 100_000)],
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds for the rows of a kind")
    parser.add_argument(
        "--peers-up-to",
        type=int,
        default=2**21,
        help="number of scores beyond which peers are left out",
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None):
    """Prints a table for each process."""
    args = parse_arguments(argv)
    if args.worker:
        print(json.dumps(list(measure(args.shapes, args.seconds, args.peers_up_to))))
        return
    packages = filter(importlib.util.find_spec, ("keras", "tf_keras"))
    harness.show((table(args, package) for package in packages), args)


def table(args, package):
    """The table of a process, with Keras 3 or Keras 2."""
    measured = in_process(args, legacy_keras=package == "tf_keras")
    times = {(shape, kind, name): taken for shape, kind, name, taken in measured}
    rows = []
    for (shape, kind, name), taken in times.items():
        others = (times.get((shape, kind, other)) for other in (BASELINE, OURS, f"plain {name}"))
        ratios = (harness.quotient(taken, other) for other in others)
        rows.append([shape, kind, name, f"{taken * 1e3:.2f}", *ratios])
    head = ["scores", "labels", "metric", "ms", "over Keras's top-k", "over our NDCG(5)"]
    head.append("over the plain formula")
    return harness.Table(head, rows, f"{package} {importlib.metadata.version(package)}", 4)


if __name__ == "__main__":
    main()
