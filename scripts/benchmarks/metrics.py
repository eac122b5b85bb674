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
from collections.abc import Callable
from typing import NamedTuple

from scripts.benchmarks import harness

BASELINE = "Keras SparseTopKCategoricalAccuracy(5)"
OURS = "NDCG(5)"
OF_ALL_ITEMS = ", labels of all items"
PEERS = ("TF-Ranking", "keras-rs", "scikit-learn")
PEERS_UP_TO = 2**21  # scores; beyond, a peer takes seconds
POSITIVES = 20
KERAS_2 = os.environ.get("TF_USE_LEGACY_KERAS") == "1"


class Case(NamedTuple):
    """A metric.

    Attributes:
        make: makes a function of labels and scores; ImportError without its package.
        takes_ids: whether the labels are class ids, not a label for each item.
    """

    make: Callable[[], Callable]
    takes_ids: bool


def compiled(metric):
    """An update of a metric in a graph."""
    import tensorflow as tf

    @tf.function
    def update(labels, scores):
        metric.update_state(labels, scores)

    return update


def tf_ranking(name, **kwargs):
    """A metric of TF-Ranking; it needs Keras 2."""
    from rank4class_tf import tfr

    return compiled(getattr(tfr.load().keras.metrics, name)(**kwargs))


def keras_rs():
    """NDCG of keras-rs."""
    import keras_rs

    return compiled(keras_rs.metrics.NDCG(k=5))


def scikit_learn():
    """NDCG of scikit-learn."""
    from sklearn.metrics import ndcg_score

    return lambda labels, scores: ndcg_score(labels.numpy(), scores.numpy(), k=5)


def cases():
    """The metrics by name."""
    from tensorflow import keras

    from rank4class_tf import metrics

    of_keras = keras.metrics.SparseTopKCategoricalAccuracy

    def ndcg():
        return compiled(metrics.NDCG(5))

    of_ids = {BASELINE: lambda: compiled(of_keras(5)), OURS: ndcg}
    of_items = {OURS + OF_ALL_ITEMS: ndcg}
    if KERAS_2:
        of_items |= {
            f"MRR(){OF_ALL_ITEMS}": lambda: compiled(metrics.MRR()),
            "TF-Ranking NDCG(5)": lambda: tf_ranking("NDCGMetric", topn=5),
            "TF-Ranking MRR()": lambda: tf_ranking("MRRMetric"),
        }
    else:
        several = [1, 3, 5, 10]
        of_ids |= {
            "TopKAccuracy(5)": lambda: compiled(metrics.TopKAccuracy(5)),
            "MRR()": lambda: compiled(metrics.MRR()),
            "NDCG([1, 3, 5, 10])": lambda: compiled(metrics.NDCG(several)),
            "TopKAccuracy([1, 3, 5, 10])": lambda: compiled(
                metrics.TopKAccuracy(several)
            ),
        }
        of_items |= {
            "keras-rs NDCG(5)": keras_rs,
            "scikit-learn ndcg_score(5)": scikit_learn,
        }
    found = {name: Case(make, takes_ids=True) for name, make in of_ids.items()}
    for name, make in of_items.items():
        found[name] = Case(make, takes_ids=False)
    return found


def plain_formulas():
    """Name -> a function of ids `[batch, P]` and scores, to the value of each list."""
    import tensorflow as tf

    discounts = 1 / tf.math.log(tf.range(2.0, 7.0))

    def highest(ids, scores):
        best = tf.math.top_k(scores, 5).indices
        same = tf.equal(best[:, :, tf.newaxis], ids[:, tf.newaxis])
        return tf.cast(tf.reduce_any(same, axis=2), tf.float32)

    def ndcg(ids, scores):
        gains = tf.reduce_sum(highest(ids, scores) * discounts, axis=1)
        return gains / tf.reduce_sum(discounts)

    def recall(ids, scores):
        return tf.reduce_sum(highest(ids, scores), axis=1) / POSITIVES

    def hit_rate(ids, scores):
        return tf.reduce_max(highest(ids, scores), axis=1)

    def mrr(ids, scores):
        of_positives = tf.gather(scores, ids, batch_dims=1)
        best = tf.reduce_max(of_positives, axis=1, keepdims=True)
        return 1 / tf.reduce_sum(tf.cast(scores >= best, tf.float32), axis=1)

    return {
        "NDCG(5)": ndcg,
        "RecallAtK(5)": recall,
        "HitRate(5)": hit_rate,
        "MRR()": mrr,
    }


def summed(formula):
    """A function that adds the values of a formula to a sum, as a metric does."""
    import tensorflow as tf

    total = tf.Variable(0.0)
    return tf.function(lambda *x: total.assign_add(tf.reduce_sum(formula(*x))))


def of_several(batch, n):
    """Name -> an update with several positives: our metric, or its plain formula."""
    import numpy as np
    import tensorflow as tf

    from rank4class_tf import metrics

    rng = np.random.default_rng(0)
    scores = tf.constant(rng.normal(size=(batch, n)), tf.float32)
    order = np.argsort(rng.random((batch, n)), axis=1)
    ids = tf.constant(order[:, :POSITIVES], tf.int32)
    ours = {
        "NDCG(5)": metrics.NDCG(5),
        "RecallAtK(5)": metrics.RecallAtK(5),
        "HitRate(5)": metrics.HitRate(5),
        "MRR()": metrics.MRR(),
    }
    calls = {}
    for name, formula in plain_formulas().items():
        calls[name] = functools.partial(compiled(ours[name]), ids, scores)
        calls[f"plain {name}"] = functools.partial(summed(formula), ids, scores)
    return calls


def is_measured(name, case, kind, size):
    """Whether a metric is measured with such labels of so many scores."""
    if name.startswith(PEERS) and size > PEERS_UP_TO:
        return False
    return kind != "graded" or not case.takes_ids or name in (BASELINE, OURS)


class Row(NamedTuple):
    """The seconds of an update, or why it is left out."""

    shape: str
    labels: str
    metric: str
    seconds: float | None
    left_out: str = ""


def measure(shapes, seconds):
    """A `Row` for each shape, kind of labels and metric."""
    return [row for batch, n in shapes for row in rows_of_shape(batch, n, seconds)]


def rows_of_shape(batch, n, seconds):
    """The rows of scores `[batch, n]`."""
    import numpy as np
    import tensorflow as tf

    shape = f"{batch}x{n}"
    rng = np.random.default_rng(0)
    scores = tf.constant(rng.normal(size=(batch, n)).astype(np.float32))
    random = tf.constant(rng.integers(0, n, batch), tf.int32)
    best = tf.argmax(scores, axis=1, output_type=tf.int32)
    graded = tf.constant(rng.integers(0, 5, (batch, n)), tf.float32)
    for kind, ids, of_items in (
        ("random", random, tf.one_hot(random, n)),
        ("best", best, tf.one_hot(best, n)),
        ("graded", random, graded),
    ):
        yield from rows_of_labels(shape, kind, ids, of_items, scores, seconds)
    if n > POSITIVES and not KERAS_2:
        yield from timed(of_several(batch, n), shape, f"{POSITIVES} positives", seconds)


def rows_of_labels(shape, kind, ids, of_items, scores, seconds):
    """The rows of a kind of labels: class ids, and a label for each item."""
    # Updates of labels of all items are slow: a few turns are enough.
    fast = {}
    slow = {}
    for name, case in cases().items():
        if not is_measured(name, case, kind, scores.shape.num_elements()):
            continue
        try:
            update = case.make()
        except ImportError as error:
            yield Row(shape, kind, name, None, str(error))
            continue
        if case.takes_ids:
            fast[name] = functools.partial(update, ids, scores)
        else:
            slow[name] = functools.partial(update, of_items, scores)
    yield from timed(fast, shape, kind, seconds)
    yield from timed(slow, shape, kind, seconds)


def timed(calls, shape, labels, seconds):
    """The rows of calls by name, which alternate."""
    times = harness.best_times(list(calls.values()), seconds)
    for name, taken in zip(calls, times, strict=True):
        yield Row(shape, labels, name, taken)


def table(package, measured):
    """The table of a process, with Keras 3 or Keras 2."""
    times = {}
    for row in measured:
        if row.seconds is None:
            print(f"{row.metric} left out: {row.left_out}", file=sys.stderr)
        else:
            times[row.shape, row.labels, row.metric] = row.seconds

    rows = []
    for (shape, kind, name), taken in times.items():
        row = [shape, kind, name, f"{taken * 1e3:.2f}"]
        for other in (BASELINE, OURS, f"plain {name}"):
            row.append(harness.quotient(taken, times.get((shape, kind, other))))
        rows.append(row)
    head = [
        "scores",
        "labels",
        "metric",
        "ms",
        "over Keras's top-k",
        "over our NDCG(5)",
        "over the plain formula",
    ]
    version = importlib.metadata.version(package)
    return harness.Table(f"{package} {version}", head, rows, 4)


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
        yield table(package, [Row(*row) for row in rows])


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
