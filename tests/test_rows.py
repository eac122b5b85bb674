"""What has a row for each list must have as many rows: broadcasting would take one for all lists.

In eager mode, in a graph whose sizes only running tells, and in such a graph that XLA compiles.
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
SCORES, IDS = OF_ROWS["scores"], OF_ROWS["class_ids"]
ENCODINGS = tf.constant([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
ERRORS = (ValueError, tf.errors.InvalidArgumentError)


def _of_ops():
    """All functions of `ops` that take several things of lists."""
    for name, function in FUNCTIONS.items():
        of_rows = {key: OF_ROWS[key] for key in parameters_of(name) if key in OF_ROWS}
        others = {key: value for key, value in needed(name).items() if key not in of_rows}
        if name != "as_lists" and len(of_rows) > 1:
            yield name, functools.partial(function, **others), of_rows


def _of_layer(layer, **of_rows):
    """A call with keyword arguments, but for the first."""

    def call(**given):
        first, *rest = given
        return layer(given[first], **{name: given[name] for name in rest})

    return call, of_rows


def _head():
    head = layers.SampledScores(4, num_sampled=2, seed=1)
    head.build((None, 2))
    return head


def _others():
    labels = tf.constant([0, 2, 1])
    of_columns = {"scores": SCORES, "labels": labels}
    head, sets = _head(), {"encodings": ENCODINGS, "exclude": IDS}
    yield (
        "RemoveAccidentalHits",
        *_of_layer(
            layers.RemoveAccidentalHits(), **of_columns, candidate_ids=tf.cast(SCORES, tf.int32)
        ),
    )
    yield (
        "SamplingProbabilityCorrection",
        *_of_layer(
            layers.SamplingProbabilityCorrection(), **of_columns, expected_counts=1 + SCORES
        ),
    )
    yield "HardNegativeMining", *_of_layer(layers.HardNegativeMining(2), **of_columns)
    exclude_items = layers.ExcludeItems()
    for name, exclude in (("ids", IDS), ("booleans", SCORES > 2)):
        yield (
            f"ExcludeItems of {name}",
            lambda scores, exclude: exclude_items([scores, exclude]),
            {"scores": SCORES, "exclude": exclude},
        )
    yield "SampledScores", *_of_layer(head, inputs=ENCODINGS, class_ids=IDS)
    yield "SampledScores.top_k", lambda **given: head.top_k(k=2, **given), sets
    yield "SampledScores.ranks", head.ranks, {**sets, "class_ids": 3 - IDS[:, :1]}
    yield (
        "CosineHead",
        *_of_layer(layers.CosineHead(4, margin=0.5), inputs=ENCODINGS, class_ids=IDS),
    )
    memory = layers.CrossBatchMemory(4)
    memory.build((None, 2))
    yield "CrossBatchMemory", *_of_layer(memory, encodings=ENCODINGS, ids=labels)
    for cls in rows.concrete("interaction"):
        layer = cls()
        layer.build([(None, 2), (None, 4, 2)])
        yield (
            cls.__name__,
            lambda encodings, candidates, layer=layer: layer([encodings, candidates]),
            {"encodings": ENCODINGS, "candidates": tf.ones([BATCH, 4, 2])},
        )
    for case in tables.SORTERS:
        if case.exact:  # The learned ones share the checks.
            yield case.name, *_of_layer(case.make(), scores=SCORES, mask=OF_ROWS["mask"])
    batch = {"y_true": IDS, "y_pred": SCORES, "exclude": tf.constant([[3], [0], [1]])}
    relevant = {**batch, "y_true": OF_ROWS["weights"], "exclude": SCORES > 2}
    of_lists, of_items = tf.constant([1.0, 2.0, 3.0]), SCORES + 1
    for label_format, given, weights in (
        ("ids", batch, of_lists),
        ("ids", batch, of_items),
        ("relevance", relevant, of_lists[:, tf.newaxis]),
        ("relevance", relevant, of_items),
    ):
        name = f"{label_format}, {weights.shape}"
        metric = metrics.NDCG(2, label_format=label_format)
        yield (
            f"NDCG of {name}",
            lambda metric=metric, **given: metric.per_list(**given),
            {**given, "sample_weight": weights},
        )
        loss = r4c.losses.SoftmaxLoss(label_format=label_format, reduction="none")
        of_loss = {**given, "sample_weight": weights}
        del of_loss["exclude"]
        yield f"SoftmaxLoss of {name}", (lambda loss=loss, **given: loss(**given)), of_loss
    for case in tables.SORTER_LOSSES:
        loss, labels = case.make(reduction="none"), case.labels(np.random.default_rng(0))
        outputs = np.random.default_rng(1).normal(size=(8, case.width))
        of_rows = {"y_true": labels, "y_pred": outputs, "sample_weight": np.arange(8)}
        yield (
            case.name,
            lambda loss=loss, **given: loss(**given),
            {key: tf.constant(value, tf.float32) for key, value in of_rows.items()},
        )


def _of_states():
    """Metrics with another `update_state`."""
    batch = {"y_true": IDS[:, :1], "y_pred": SCORES, "sample_weight": tf.ones([3])}
    of_columns = {"y_true": SCORES, "y_pred": SCORES, "sample_weight": tf.ones([3])}
    yield "MacroAverage", metrics.MacroAverage(metrics.MRR(label_format="ids"), 4), batch
    groups = metrics.MacroAverage(metrics.MRR(label_format="ids"), 4)
    yield "MacroAverage of groups", groups, {**batch, "groups": IDS[:, 0]}
    error = metrics.ExpectedCalibrationError(
        label_format="ids", probabilities=layers.Probabilities()
    )
    yield "ExpectedCalibrationError", error, batch
    yield "MedianRank", metrics.MedianRank(label_format="ids"), batch
    for name, make in tables.DATASET_METRICS.items():
        yield name, make(), of_columns


CASES = {name: (function, of_rows) for name, function, of_rows in (*_of_ops(), *_others())}
for name, metric, of_rows in _of_states():
    CASES[name] = (
        lambda metric=metric, **given: (metric.update_state(**given), metric.result())[1],
        of_rows,
    )


def test_the_table_has_the_functions_of_lists():
    assert {"rankmax", "expected_ranks", "soft_ndcg"} <= set(CASES)


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
@pytest.mark.parametrize("case", CASES)
def test_other_numbers_of_rows_raise(case, mode):
    function, of_rows = CASES[case]
    names = list(of_rows)
    step = lambda *values: function(**dict(zip(names, values, strict=True)))  # noqa: E731
    if mode != "eager":
        specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in of_rows.values()]
        step = tf.function(step, specs, jit_compile=mode == "xla", autograph=False)
    if mode != "xla":  # It compiles each, and right ones in other tests.
        step(*of_rows.values())
    for name in of_rows:
        for size in (1,) if mode == "xla" else range(BATCH):
            values = [x[:size] if key == name else x for key, x in of_rows.items()]
            with pytest.raises(ERRORS, match=r"`\w+` must (have|hold|be)|\w+_must_(have|hold|be)_"):
                step(*values)
