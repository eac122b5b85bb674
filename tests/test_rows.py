"""What has a row for each list must have as many rows: broadcasting would take one for all lists.

In eager mode, in a graph whose sizes only running tells, and in such a graph that XLA compiles.
"""

import inspect

import pytest
import tensorflow as tf

import rank4class_tf as r4c
from rank4class_tf import layers, metrics, ops

BATCH = 3
SCORES = tf.constant([[3.0, 1.0, 2.0, 0.0], [0.0, 2.0, 1.0, 3.0], [1.0, 3.0, 0.0, 2.0]])
IDS = tf.constant([[0, 1], [2, -1], [3, 2]])
ENCODINGS = tf.constant([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])

OF_ROWS = {
    "scores": SCORES,
    "class_ids": IDS,
    "relevance": tf.constant([[1.0, 2.0], [1.0, 0.0], [3.0, 1.0]]),
    "mask": tf.constant([[True, True, True, False], [True] * 4, [False, True, True, True]]),
    "weights": tf.ones_like(SCORES),
    "ranks": tf.constant([[1.0, 2.0], [1.0, 4.0], [3.0, 1.0]]),
    "ranks_among_positives": tf.constant([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0]]),
    "alpha": tf.constant([1.0, 2.0, 3.0]),
}
ERRORS = (ValueError, tf.errors.InvalidArgumentError)
OPTIONS = {
    "regularizer": "entropy",
}


def _of_ops():
    """All functions of `ops` that take several things of lists."""
    for name in ops.__all__:
        function = getattr(ops, name)
        parameters = inspect.signature(function).parameters if inspect.isfunction(function) else {}
        of_rows = {key: OF_ROWS[key] for key in parameters if key in OF_ROWS}
        needed = {key: OPTIONS[key] for key in parameters if key in OPTIONS}
        if name == "soft_recall":
            needed["k"] = 2
        if name != "as_lists" and len(of_rows) > 1:
            yield name, (lambda f=function, kw=needed, **given: f(**given, **kw)), of_rows


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
    yield (
        "SampledScores, own negatives",
        *_of_layer(
            layers.SampledScores(9, num_sampled=2, shared_negatives=False, seed=1),
            inputs=ENCODINGS,
            class_ids=IDS,
        ),
    )
    yield "SampledScores.top_k", lambda **given: head.top_k(k=2, **given), sets
    yield "SampledScores.ranks", head.ranks, {**sets, "class_ids": 3 - IDS[:, :1]}
    yield (
        "CosineHead",
        *_of_layer(layers.CosineHead(4, margin=0.5), inputs=ENCODINGS, class_ids=IDS),
    )
    memory = layers.CrossBatchMemory(4)
    memory.build((None, 2))
    yield "CrossBatchMemory", *_of_layer(memory, encodings=ENCODINGS, ids=labels)
    for interaction in (
        layers.DotProductInteraction,
        layers.CosineInteraction,
        layers.BilinearInteraction,
        layers.ConcatInteraction,
        layers.LatentCrossInteraction,
    ):
        layer = interaction()
        layer.build([(None, 2), (None, 4, 2)])
        yield (
            interaction.__name__,
            lambda encodings, candidates, layer=layer: layer([encodings, candidates]),
            {"encodings": ENCODINGS, "candidates": tf.ones([BATCH, 4, 2])},
        )
    for sorter in (layers.SigmoidSorter, layers.LaplaceSorter, layers.SoftRankSorter):
        yield sorter.__name__, *_of_layer(sorter(), scores=SCORES, mask=OF_ROWS["mask"])
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
    sides = tf.constant([[1.0, 0.5, 0.25], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])
    for make, y_pred, y_true in (
        (r4c.losses.SpearmanLoss, SCORES, SCORES[::-1]),
        (r4c.losses.MeanAveragePrecisionLoss, SCORES, tf.cast(SCORES > 1, tf.float32)),
        (r4c.losses.RankTripletLoss, sides, tf.constant([0, 1, 0])),
    ):
        loss = make(reduction="none")
        yield (
            make.__name__,
            lambda loss=loss, **given: loss(**given),
            {"y_true": y_true, "y_pred": y_pred, "sample_weight": of_lists},
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
    yield "MeanAveragePrecision", metrics.MeanAveragePrecision(4), of_columns
    yield "SpearmanCorrelation", metrics.SpearmanCorrelation(4), of_columns


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
        for rows in (1,) if mode == "xla" else range(BATCH):
            values = [x[:rows] if key == name else x for key, x in of_rows.items()]
            with pytest.raises(ERRORS, match=r"`\w+` must (have|hold|be)|\w+_must_(have|hold|be)_"):
                step(*values)
