"""Labels of all forms with faults, for losses and metrics."""

import functools
import math
import warnings
from unittest import mock

import numpy as np
import tensorflow as tf

from rank4class_tf import losses, metrics
from rank4class_tf._tf import raising
from scripts.robustness.fuzzing.faults import Defect, outcome

_DTYPES = ("int32", "int64", "uint8", "int8", "uint64", "float32", "float64", "float16", "bool")
_STRANGE: tuple[float, ...] = (
    -2,
    5,
    255,
    2**31,
    -(2**31) - 1,
    2**40,
    2**63 - 1,
    2**63,
    2**64 - 1,
    0.5,
    math.nan,
)
_STRANGE += (math.inf, -math.inf, 1e30, -1e-3)


def _as_array(values, dtype):
    """An array of a dtype, None if it does not hold the values."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            array = np.array(values, dtype)
        except (OverflowError, ValueError):
            return None
    back = array.astype(object).reshape(-1).tolist()
    flat = np.array(values, object).reshape(-1).tolist()
    kept = all(
        x == y or x != x and y != y or dtype.startswith("f")
        for x, y in zip(back, flat, strict=True)
    )
    return array if kept else None


def _labels(draws):
    """Labels, scores `[batch, n]` and the format, most with a fault."""
    batch, n = 1 + draws.integer(3), 2 + draws.integer(4)
    scores = np.array([[draws.integer(17) / 4 for _ in range(n)] for _ in range(batch)], np.float32)
    kind = draws.of(["ids", "ids", "padded", "ragged", "relevance", "relevance"])
    width = {"ids": 1, "padded": 1 + draws.integer(4), "relevance": n}.get(kind, 0)
    lengths = [draws.integer(4) for _ in range(batch)]
    if kind == "relevance":
        rows = [[draws.of([0, 0, 1, 2, -1]) for _ in range(n)] for _ in range(batch)]
    else:
        lengths = lengths if kind == "ragged" else [width] * batch
        rows = [[draws.integer(n + 1) - 1 for _ in range(size)] for size in lengths]
    for _ in range(draws.integer(3)):
        row = draws.of(rows)
        if row:
            row[draws.integer(len(row))] = draws.of(_STRANGE)
    dtype = draws.of(_DTYPES if draws.chance(2) else ("int64", "float32"))
    if kind == "ragged":
        flat = _as_array([x for row in rows for x in row], dtype)
        if flat is None:
            return None
        labels = tf.RaggedTensor.from_row_lengths(flat, lengths)
    else:
        labels = _as_array(rows, dtype)
        if labels is None:
            return None
        if kind == "ids" and draws.chance(2):
            labels = labels[:, 0]
        fault = draws.integer(24)
        if fault == 0:
            labels = labels[:-1]
        elif fault == 1:
            labels = labels[None]
        elif fault == 2:
            labels = labels.reshape(-1)[:1].reshape(())
        elif fault == 3:
            labels = np.concatenate([labels] * 2, axis=-1)
        elif fault == 4:
            labels = labels[..., None]
        elif fault == 5:
            labels = np.array([["x"] * max(width, 1)] * batch)
        elif fault == 6:
            scores = draws.of([scores[0], scores[None], scores[:, :0]])
        elif fault == 7:
            labels, scores = labels[:0], scores[:0]
    return labels, scores, draws.of([None, "ids", "relevance"])


def judged(labels, scores, label_format):
    """The positives of each list, by the rules of the documentation.

    Returns:
        None where the labels as a whole break them; else for each list None where it breaks them,
        or relevance by item and the items that are masked.
    """
    if scores.ndim != 2 or not scores.shape[1]:
        return None
    batch, n = scores.shape
    inferred = label_format is None and not isinstance(labels, tf.RaggedTensor)
    if isinstance(labels, tf.RaggedTensor):
        if label_format == "relevance" or labels.dtype == tf.bool:
            return None
        rows, label_format, dtype = labels.to_list(), "ids", labels.dtype.as_numpy_dtype
    else:
        dtype = labels.dtype.type
        if not batch:
            return []  # Whatever the labels are.
        if labels.dtype.kind in "US" or labels.ndim not in (1, 2) or len(labels) != batch:
            return None
        label_format = label_format or _format(labels, n)
        if label_format is None or label_format == "relevance" and labels.shape != scores.shape:
            return None
        rows = labels.reshape(batch, -1).tolist() if batch else []
    if label_format == "ids" and dtype == np.bool_:
        return None
    judgements = [(_of_ids if label_format == "ids" else _of_relevance)(row, n) for row in rows]
    if inferred and label_format == "ids" and len(rows[0]) > 2:
        # They may be meant as labels of all items, of which there are another number.
        for i, row in enumerate(rows):
            judgements[i] = None if set(row) <= {0, 1} else judgements[i]
    return judgements


def _format(labels, n):
    kind = labels.dtype.kind
    if labels.ndim == 1:
        return None if kind == "b" else "ids"
    if labels.shape[1] == n and n > 1:
        return "relevance"
    if labels.shape[1] == 1:
        return None if kind == "b" else "ids"
    return "ids" if kind in "iu" else None


def _of_ids(row, n):
    if any(x != x or x not in range(-1, n) for x in row):
        return None
    return {int(x): 1.0 for x in row if x >= 0}, set()


def _of_relevance(row, n):
    del n
    row = [float(np.float32(x)) for x in row]
    with np.errstate(all="ignore"):
        total = np.sum(np.array(row, np.float32))
    if not np.isfinite(total):
        return None
    masked = {i for i, x in enumerate(row) if x < 0}
    return {i: x for i, x in enumerate(row) if x > 0}, masked


def _softmax(scores, positives, masked):
    kept = [s for i, s in enumerate(scores) if i not in masked]
    top = max(kept, default=0.0)
    total = math.log(sum(math.exp(s - top) for s in kept)) + top if kept else 0.0
    return sum(y * (total - scores[i]) for i, y in positives.items())


def _reciprocal_rank(scores, positives, masked):
    """By all orders of the items that share the best positive's score."""
    others = [s for i, s in enumerate(scores) if i not in masked and i not in positives]
    best = max(scores[i] for i in positives)
    with_it = sum(scores[i] == best for i in positives)
    above, tied = sum(s > best for s in others), sum(s == best for s in others)
    expected, left = 0.0, 1.0
    for place in range(tied + 1):  # So many of the others stand before the first of them.
        chance = left * with_it / (with_it + tied - place)
        expected += chance / (above + place + 1)
        left -= chance
    return expected


def _values(judgement, scores, formula):
    return [
        math.nan if of is None else formula(scores[i].tolist(), *of) if of[0] else 0.0
        for i, of in enumerate(judgement)
    ]


def _close(expected, found):
    found = np.asarray(found, np.float64)
    if found.shape != np.shape(expected):
        return False
    with np.errstate(all="ignore"):
        same = np.isclose(found, expected, rtol=2e-5, atol=2e-5, equal_nan=True)
    # Relevance near the end of float32 may overflow: infinite is what it is then.
    huge = np.abs(expected) > 1e37
    return bool(np.all(same | huge))


_NAMES = ["`y_true`", "`y_pred`", "`label_format`", "Labels and ids"]


def _check_labels(draws, measure, formula):
    drawn = _labels(draws)
    if drawn is None:
        return "not made"
    labels, scores, label_format = drawn
    judgement = judged(labels, scores, label_format)
    right = None
    if judgement is not None and None not in judgement:
        expected = _values(judgement, scores, formula)
        right = functools.partial(_close, expected)
    some = len(scores) > 0  # An empty batch does not show what its labels are.
    try:
        return outcome(lambda: measure(labels, scores, label_format), right, _NAMES, some)
    except Defect as defect:
        raise Defect(f"{defect}; {labels!r}, {scores.tolist()}, {label_format}") from defect


def losses_eager(draws, folder):
    """`SoftmaxLoss` of any labels, in eager mode."""
    del folder

    def measure(labels, scores, label_format):
        loss = losses.SoftmaxLoss(label_format=label_format, reduction="none")
        return loss(labels, scores).numpy()

    return _check_labels(draws, measure, _softmax)


def metrics_eager(draws, folder):
    """`MRR` of any labels, in eager mode."""
    del folder

    def measure(labels, scores, label_format):
        return metrics.MRR(label_format=label_format).per_list(labels, scores)[0].numpy()[:, 0]

    return _check_labels(draws, measure, _reciprocal_rank)


_GRAPHS: dict = {}


def _in_graph(kind, make):
    """A measure as XLA gets it, where nothing can raise; traced once for each form of labels."""

    def measure(labels, scores, label_format):
        ragged = isinstance(labels, tf.RaggedTensor)
        labels = labels if ragged else tf.constant(labels)
        key = kind, labels.dtype, ragged, labels.shape.rank, np.ndim(scores), label_format
        if key not in _GRAPHS:
            shape = [None] * labels.shape.rank
            spec = tf.RaggedTensorSpec if ragged else tf.TensorSpec
            of_labels = spec(shape, labels.dtype)
            of_scores = tf.TensorSpec([None] * np.ndim(scores), tf.float32)
            try:
                function = tf.function(make(label_format), [of_labels, of_scores])
                with mock.patch.object(raising, "in_xla", lambda: True):
                    _GRAPHS[key] = function.get_concrete_function() and function
            except ValueError as error:
                _GRAPHS[key] = error
        if isinstance(_GRAPHS[key], ValueError):
            raise ValueError(str(_GRAPHS[key]))
        return _GRAPHS[key](labels, scores).numpy()

    return measure


def _check_in_graph(draws, measure, formula):
    """A list that breaks the rules is NaN there, and changes no other list."""
    drawn = _labels(draws)
    if drawn is None:
        return "not made"
    labels, scores, label_format = drawn
    if label_format is None:  # Shapes are not known.
        label_format = draws.of(["ids", "relevance"])
    judgement = judged(labels, scores, label_format)
    right = None
    if judgement is not None:
        expected = _values(judgement, scores, formula)
        right = functools.partial(_close, expected)
    # Where shapes are known only as it runs, TensorFlow's own operations find what is wrong.
    names = [*_NAMES, "ncompatible shapes", "must be", "Expected", "same", "dimension", "shape"]
    names.append("Number of batches")
    try:
        measured = functools.partial(measure, labels, scores, label_format)
        return outcome(measured, right, names, len(scores) > 0)
    except Defect as defect:
        raise Defect(f"{defect}; {labels!r}, {scores.tolist()}, {label_format}") from defect


def losses_graph(draws, folder):
    """`SoftmaxLoss` of any labels, in graph mode."""
    del folder

    def make(label_format):
        return losses.SoftmaxLoss(label_format=label_format, reduction="none")

    return _check_in_graph(draws, _in_graph("loss", make), _softmax)


def metrics_graph(draws, folder):
    """`MRR` of any labels, in graph mode."""
    del folder

    def make(label_format):
        metric = metrics.MRR(label_format=label_format)

        def values(labels, scores):
            return metric.per_list(labels, scores)[0][:, 0]

        return values

    return _check_in_graph(draws, _in_graph("metric", make), _reciprocal_rank)
