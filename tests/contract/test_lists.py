"""What holds for every loss and every metric of lists: labels, shapes and dtypes."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from .. import derivatives
from ..refused import refused
from ..rounding import assert_all_close
from .tables import KINDS, LOSSES, METRICS, MetricCase

pytestmark = [
    pytest.mark.parametrize("case", [*LOSSES, *METRICS]),
    pytest.mark.base(KINDS),
]

BATCH, N = 4, 7


def of_lists(case, **kwargs):
    """A function: losses of lists and their gradient, or metric values and weights."""
    if isinstance(case, MetricCase):
        return case.make(**kwargs).per_list
    loss = case.make(reduction="none", **kwargs)
    return lambda y, s: derivatives.value_and_gradient(functools.partial(loss, y), s)


def assert_same(case, found, expected):
    tolerances = (1e-14, 0) if isinstance(case, MetricCase) else (1e-5, 1e-6)
    assert_all_close(found, expected, *tolerances)


def test_label_forms_agree(case, scores):
    ids = np.array([2, 0, 6, 3])
    expected = of_lists(case)(ids, scores)
    assert len(expected[0]) == BATCH
    none = np.full(BATCH, -1)
    column = ids[:, None]
    padded = [np.stack(x, axis=1) for x in ((ids, none), (none, ids), (ids, none, ids))]
    others = tf.ragged.constant(column.tolist()), np.eye(N, dtype="float32")[ids]
    for labels in (
        column,
        ids.astype(np.int64),
        ids.astype(np.float64),
        *padded,
        *others,
    ):
        assert_same(case, of_lists(case)(labels, scores), expected)
    several = tf.ragged.constant([[2], [0, 3], [1, 4, 5], [6, 0]])
    padded = several.to_tensor(default_value=-1)
    expected = of_lists(case)(tf.reduce_max(tf.one_hot(padded, N), axis=1), scores)
    for labels in (several, padded):
        assert_same(case, of_lists(case)(labels, scores), expected)
    # As many ids as classes need the format.
    wide = tf.pad(padded, [[0, 0], [0, N - padded.shape[1]]], constant_values=-1)
    assert_same(case, of_lists(case, label_format="ids")(wide, scores), expected)


def test_bad_labels_raise_or_are_nan(case, scores, relevance, as_for_xla):
    rule = r"must hold class ids in \[0, 7\)"
    compiled = tf.function(of_lists(case))
    forms = [(np.array([2, bad, 6, 3]), rule) for bad in (N, N + 100, -2, 0.5, 2**40)]
    for bad in (np.nan, np.inf):
        relevance[1, 2] = bad
        forms.append((relevance.copy(), "finite relevance"))
    for labels, message in forms:
        with refused(f"`y_true` .*{message}"):
            of_lists(case)(labels, scores)
        value = np.ravel(compiled(labels, scores)[0])
        assert_array_equal(np.isnan(value), [False, True, False, False])


def test_shapes_are_checked(case, scores):
    with refused(r"`y_pred` must hold numbers of the shape \[batch, n\]"):
        of_lists(case)([1], scores[0])
    with refused("`y_true` must have a row for each list"):
        of_lists(case)([1, 2], scores)
    with refused("`y_true` must have a row for each list"):
        tf.function(of_lists(case))(tf.constant([[1, 2, 3]]), scores)
    with refused("`label_format`"):
        case.make(label_format="onehot")
    with refused("`label_format` must be"):
        of_lists(case)(np.zeros((BATCH, N, 2)), scores)
    signature = [tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None, N])]
    step = tf.function(of_lists(case), input_signature=signature)
    with refused("do not distinguish the two"):
        step.get_concrete_function()


def test_unknown_static_shapes(case, normal):
    scores = normal(BATCH, 40)
    labels = np.zeros((BATCH, 40), "float32")
    labels[:, 3:23] = 1 + np.arange(20) % 2
    expected = of_lists(case, label_format="relevance")(labels, scores)
    specs = [tf.TensorSpec([None, None])] * 2
    graph = tf.function(of_lists(case, label_format="relevance"), input_signature=specs)
    assert_same(case, graph(labels, scores), expected)


def test_half_precision_is_computed_in_float32(case, scores, relevance):
    for dtype in (tf.float16, tf.bfloat16):
        half = tf.cast(scores, dtype)
        value, second = of_lists(case)(relevance, half)
        expected = of_lists(case)(relevance, tf.cast(half, tf.float32))
        assert value.dtype == expected[0].dtype
        assert_array_equal(value, expected[0])
        second = tf.cast(second, tf.float32)
        assert_allclose(second, expected[1], rtol=1e-2, atol=1e-3)
