"""Time of an update of metrics, as ratios to Keras's top-k accuracy in the same run.

    taskset -c 0 python -m scripts.benchmarks.metrics --shapes 1024x28 1024x1000

Keras's `SparseTopKCategoricalAccuracy` stops reading a list once k scores are above the
label's. It is therefore measured twice: with random labels, where it reads a small part
of the scores, and with the label at the highest score, as for a good model, where it
reads all. TF-Ranking's metrics need Keras 2 and run in a separate process, together
with Keras's metric. All take class ids, except TF-Ranking, keras-rs and scikit-learn,
which take one-hot labels. What takes one-hot labels is also measured with grades from 0
to 4 for all items, beside Keras's metric with class ids. With 20 positives per list,
ids `[batch, 20]`, the peers are plain formulas, which break ties by position. Updates
run in a tf.function, except scikit-learn's. They alternate; the best time of each
counts.

All shapes take five minutes. `--quick` measures short lists.
"""

import functools
import importlib.metadata
import importlib.util
import os
import sys

from scripts.benchmarks import harness

BASELINE = "Keras SparseTopKCategoricalAccuracy(5)"
OURS = "NDCG(5)"
OF_ALL_ITEMS = ", labels of all items"
PEERS = ("TF-Ranking", "keras-rs", "scikit-learn")
PEERS_UP_TO = 2**21  # scores; beyond, a peer takes seconds
POSITIVES = 20
KERAS_2 = os.environ.get("TF_USE_LEGACY_KERAS") == "1"


def cases():
    """Name -> builder of `update(labels, of_items, scores)`; ImportError if missing."""
    import tensorflow as tf
    from tensorflow import keras

    from rank4class_tf import metrics

    def compiled(make, labels_of_items=True):
        def build():
            metric = make()

            @tf.function
            def update(labels, of_items, scores):
                metric.update_state(of_items if labels_of_items else labels, scores)

            return update

        return build

    def tf_ranking(name, **kwargs):
        from rank4class_tf import tfr

        return getattr(tfr.load().keras.metrics, name)(**kwargs)

    def keras_rs():
        import keras_rs

        return keras_rs.metrics.NDCG(k=5)

    def scikit_learn():
        from sklearn.metrics import ndcg_score

        return lambda labels, of_items, scores: ndcg_score(
            of_items.numpy(), scores.numpy(), k=5
        )

    of_ids = {
        BASELINE: lambda: keras.metrics.SparseTopKCategoricalAccuracy(5),
        OURS: lambda: metrics.NDCG(5),
    }
    of_items = {OURS + OF_ALL_ITEMS: lambda: metrics.NDCG(5)}
    if KERAS_2:
        of_items |= {
            f"MRR(){OF_ALL_ITEMS}": metrics.MRR,
            "TF-Ranking NDCG(5)": lambda: tf_ranking("NDCGMetric", topn=5),
            "TF-Ranking MRR()": lambda: tf_ranking("MRRMetric"),
        }
    else:
        of_ids |= {
            "TopKAccuracy(5)": lambda: metrics.TopKAccuracy(5),
            "MRR()": metrics.MRR,
            "NDCG([1, 3, 5, 10])": lambda: metrics.NDCG([1, 3, 5, 10]),
            "TopKAccuracy([1, 3, 5, 10])": lambda: metrics.TopKAccuracy([1, 3, 5, 10]),
        }
        of_items["keras-rs NDCG(5)"] = keras_rs
    found = {name: compiled(make, False) for name, make in of_ids.items()}
    found |= {name: compiled(make) for name, make in of_items.items()}
    if not KERAS_2:
        found["scikit-learn ndcg_score(5)"] = scikit_learn
    return found


def of_several(batch, n):
    """Name -> an update with several positives: our metric, or its plain formula."""
    import numpy as np
    import tensorflow as tf

    from rank4class_tf import metrics

    rng = np.random.default_rng(0)
    scores = tf.constant(rng.normal(size=(batch, n)), tf.float32)
    order = np.argsort(rng.random((batch, n)), axis=1)
    ids = tf.constant(order[:, :POSITIVES], tf.int32)
    discounts = 1 / tf.math.log(tf.range(2.0, 7.0))

    def highest(ids, scores):
        best = tf.math.top_k(scores, 5).indices
        same = tf.equal(best[:, :, tf.newaxis], ids[:, tf.newaxis])
        return tf.cast(tf.reduce_any(same, axis=2), tf.float32)

    def mrr(ids, scores):
        of_positives = tf.gather(scores, ids, batch_dims=1)
        best = tf.reduce_max(of_positives, axis=1, keepdims=True)
        return 1 / tf.reduce_sum(tf.cast(scores >= best, tf.float32), axis=1)

    def ndcg(ids, scores):
        gains = tf.reduce_sum(highest(ids, scores) * discounts, axis=1)
        return gains / tf.reduce_sum(discounts)

    def recall(ids, scores):
        return tf.reduce_sum(highest(ids, scores), axis=1) / POSITIVES

    def hit_rate(ids, scores):
        return tf.reduce_max(highest(ids, scores), axis=1)

    def of_plain(formula):
        total = tf.Variable(0.0)
        return tf.function(lambda *x: total.assign_add(tf.reduce_sum(formula(*x))))

    for name, metric, formula in (
        ("NDCG(5)", metrics.NDCG(5), ndcg),
        ("RecallAtK(5)", metrics.RecallAtK(5), recall),
        ("HitRate(5)", metrics.HitRate(5), hit_rate),
        ("MRR()", metrics.MRR(), mrr),
    ):
        yield name, functools.partial(tf.function(metric.update_state), ids, scores)
        yield f"plain {name}", functools.partial(of_plain(formula), ids, scores)


def measure(shapes, seconds):
    """Rows of shape, kind of labels, name, and the seconds or why it is left out."""
    import numpy as np
    import tensorflow as tf

    rng, rows = np.random.default_rng(0), []

    def time(calls, *place):
        times = harness.best_times(list(calls.values()), seconds)
        rows.extend(
            [*place, name, taken] for name, taken in zip(calls, times, strict=True)
        )

    for batch, n in shapes:
        shape = f"{batch}x{n}"
        scores = tf.constant(rng.normal(size=(batch, n)).astype(np.float32))
        random = tf.constant(rng.integers(0, n, batch), tf.int32)
        best = tf.argmax(scores, axis=1, output_type=tf.int32)
        graded = tf.constant(rng.integers(0, 5, (batch, n)), tf.float32)
        for kind, labels, of_items in (
            ("random", random, tf.one_hot(random, n)),
            ("best", best, tf.one_hot(best, n)),
            ("graded", random, graded),
        ):
            # A few turns are enough for slow updates.
            fast, slow = {}, {}
            for name, build in cases().items():
                is_peer, of_all = name.startswith(PEERS), name.endswith(OF_ALL_ITEMS)
                if is_peer and batch * n > PEERS_UP_TO:
                    continue
                if kind == "graded" and not (
                    is_peer or of_all or name in (BASELINE, OURS)
                ):
                    continue
                try:
                    call = functools.partial(build(), labels, of_items, scores)
                except ImportError as error:
                    rows.append([shape, kind, name, str(error)])
                    continue
                (slow if is_peer or of_all else fast)[name] = call
            time(fast, shape, kind)
            time(slow, shape, kind)
        if n > POSITIVES and not KERAS_2:
            time(dict(of_several(batch, n)), shape, f"{POSITIVES} positives")
    return rows


def table(package, measured):
    """The table of a process, with Keras 3 or Keras 2."""
    for _, _, name, taken in measured:
        if isinstance(taken, str):
            print(f"{name} left out: {taken}", file=sys.stderr)
    times = {
        tuple(place): taken for *place, taken in measured if not isinstance(taken, str)
    }
    rows = []
    for (shape, kind, name), taken in times.items():
        others = (
            times.get((shape, kind, other))
            for other in (BASELINE, OURS, f"plain {name}")
        )
        ratios = (harness.quotient(taken, other) for other in others)
        rows.append([shape, kind, name, f"{taken * 1e3:.2f}", *ratios])
    head = [
        "scores",
        "labels",
        "metric",
        "ms",
        "over Keras's top-k",
        "over our NDCG(5)",
    ]
    head.append("over the plain formula")
    return harness.Table(
        f"{package} {importlib.metadata.version(package)}", head, rows, 4
    )


def parser():
    """The command line."""
    quick = {"shapes": [(8, 32)], "seconds": 0.05}
    result = harness.parser(__spec__, __doc__, quick, seconds=1.0, time_limit=3600.0)
    harness.add_shapes(result, "batch x n", [(1024, 28), (1024, 1000), (1024, 100_000)])
    return result


def measured(args):
    """Yields a table for each Keras that is installed."""
    for package in filter(importlib.util.find_spec, ("keras", "tf_keras")):
        environment = {"TF_USE_LEGACY_KERAS": str(int(package == "tf_keras"))}
        rows = harness.run(__spec__.name, args, environment, shapes=args.shapes)
        if "error" in rows:
            sys.exit(rows["error"])
        yield table(package, rows)


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
