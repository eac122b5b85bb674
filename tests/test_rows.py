"""What has a row per list must have as many rows: broadcasting would use one for all.

In eager mode, in a graph whose sizes only running tells, and in such a graph that XLA
compiles.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import rank4class_tf as r4c
from rank4class_tf import layers, metrics

from .contract import rows, tables
from .ops.arguments import FUNCTIONS, OF_ROWS, needed, parameters_of

BATCH = 3
SCORES = OF_ROWS["scores"]
IDS = OF_ROWS["class_ids"]
ENCODINGS = tf.constant([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
ERRORS = (ValueError, tf.errors.InvalidArgumentError)


def _of_ops():
    """All functions of `ops` that take several things of lists."""
    for name, function in FUNCTIONS.items():
        of_rows = {key: OF_ROWS[key] for key in parameters_of(name) if key in OF_ROWS}
        others = {
            key: value for key, value in needed(name).items() if key not in of_rows
        }
        if name != "as_lists" and len(of_rows) > 1:
            yield name, functools.partial(function, **others), of_rows


def _of_layer(layer):
    """A call with keyword arguments, but for the first."""

    def call(**given):
        first, *rest = given
        return layer(given[first], **{name: given[name] for name in rest})

    return call


def _others():
    labels = tf.constant([0, 2, 1])
    columns = {"scores": SCORES, "labels": labels}
    of_head = {"inputs": ENCODINGS, "class_ids": IDS}
    head = layers.SampledScores(4, num_sampled=2, seed=1)
    memory = layers.CrossBatchMemory(4)
    for layer in (head, memory):
        layer.build((None, 2))
    # All share the checks.
    sorters = [case.make() for case in tables.SORTERS if case.exact]
    for layer, of_rows in (
        (
            layers.RemoveAccidentalHits(),
            {**columns, "candidate_ids": tf.cast(SCORES, tf.int32)},
        ),
        (
            layers.SamplingProbabilityCorrection(),
            {**columns, "expected_counts": 1 + SCORES},
        ),
        (layers.HardNegativeMining(2), columns),
        (head, of_head),
        (layers.CosineHead(4, margin=0.5), of_head),
        (memory, {"encodings": ENCODINGS, "ids": labels}),
        *((sorter, {"scores": SCORES, "mask": OF_ROWS["mask"]}) for sorter in sorters),
    ):
        yield layer.name, _of_layer(layer), of_rows
    sets = {"encodings": ENCODINGS, "exclude": IDS}
    exclude_items = layers.ExcludeItems()
    yield "SampledScores.top_k", lambda **given: head.top_k(k=2, **given), sets
    yield "SampledScores.ranks", head.ranks, {**sets, "class_ids": 3 - IDS[:, :1]}
    for name, exclude in (("ids", IDS), ("booleans", SCORES > 2)):
        call = lambda scores, exclude: exclude_items([scores, exclude])  # noqa: E731
        yield f"ExcludeItems of {name}", call, {"scores": SCORES, "exclude": exclude}
    for cls in rows.concrete("interaction"):
        layer = cls()
        layer.build([(None, 2), (None, 4, 2)])
        call = lambda encodings, candidates, layer=layer: layer([encodings, candidates])  # noqa: E731
        candidates = tf.ones([BATCH, 4, 2])
        yield cls.__name__, call, {"encodings": ENCODINGS, "candidates": candidates}
    batch = {"y_true": IDS, "y_pred": SCORES, "exclude": tf.constant([[3], [0], [1]])}
    relevant = {**batch, "y_true": OF_ROWS["weights"], "exclude": SCORES > 2}
    of_lists = tf.constant([1.0, 2.0, 3.0])
    of_items = SCORES + 1
    forms = [
        ("ids", batch, of_lists),
        ("ids", batch, of_items),
        ("relevance", relevant, of_items),
        ("relevance", relevant, of_lists[:, tf.newaxis]),
    ]
    for label_format, given, weights in forms:
        name = f"{label_format}, {weights.shape}"
        given = {**given, "sample_weight": weights}
        yield (
            f"NDCG of {name}",
            metrics.NDCG(2, label_format=label_format).per_list,
            given,
        )
        loss = r4c.losses.SoftmaxLoss(label_format=label_format, reduction="none")
        of_loss = {key: value for key, value in given.items() if key != "exclude"}
        yield f"SoftmaxLoss of {name}", functools.partial(loss), of_loss
    for case in tables.SORTER_LOSSES:
        outputs = np.random.default_rng(1).normal(size=(8, case.width))
        labels = case.labels(np.random.default_rng(0))
        of_rows = {"y_true": labels, "y_pred": outputs, "sample_weight": np.arange(8)}
        of_rows = {
            key: tf.constant(value, tf.float32) for key, value in of_rows.items()
        }
        yield case.name, functools.partial(case.make(reduction="none")), of_rows


def _of_states():
    """Metrics with another `update_state`."""
    batch = {"y_true": IDS[:, :1], "y_pred": SCORES, "sample_weight": tf.ones([3])}
    of_columns = {"y_true": SCORES, "y_pred": SCORES, "sample_weight": tf.ones([3])}
    yield (
        "MacroAverage",
        metrics.MacroAverage(metrics.MRR(label_format="ids"), 4),
        batch,
    )
    groups = metrics.MacroAverage(metrics.MRR(label_format="ids"), 4)
    yield "MacroAverage of groups", groups, {**batch, "groups": IDS[:, 0]}
    probabilities = layers.Probabilities()
    error = metrics.ExpectedCalibrationError(
        label_format="ids", probabilities=probabilities
    )
    yield "ExpectedCalibrationError", error, batch
    yield "MedianRank", metrics.MedianRank(label_format="ids"), batch
    for name, make in tables.DATASET_METRICS.items():
        yield name, make(), of_columns


CASES = {
    name: (function, of_rows) for name, function, of_rows in (*_of_ops(), *_others())
}
for name, metric, of_rows in _of_states():
    CASES[name] = (
        lambda metric=metric, **given: (metric.update_state(**given), metric.result())[
            1
        ],
        of_rows,
    )
assert {"rankmax", "expected_ranks", "soft_ndcg"} <= set(CASES)


@pytest.mark.parametrize(
    "mode", ["eager", "graph", pytest.param("xla", marks=pytest.mark.weekly)]
)
@pytest.mark.parametrize("case", CASES)
def test_other_numbers_of_rows_raise(case, mode):
    function, of_rows = CASES[case]
    step = lambda *values: function(**dict(zip(list(of_rows), values, strict=True)))  # noqa: E731
    if mode != "eager":
        specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in of_rows.values()]
        step = tf.function(step, specs, jit_compile=mode == "xla", autograph=False)
    if mode != "xla":  # It compiles each, and right ones in other tests.
        step(*of_rows.values())
    for name in of_rows:
        for size in (1,) if mode == "xla" else range(BATCH):
            values = [x[:size] if key == name else x for key, x in of_rows.items()]
            with pytest.raises(
                ERRORS, match=r"`\w+` must (have|hold|be)|\w+_must_(have|hold|be)_"
            ):
                step(*values)
