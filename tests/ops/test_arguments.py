"""What operations make of arguments at the edge of what they take."""

import math

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from rank4class_tf import losses, ops

from ..derivatives import value_and_gradient
from ..refused import assert_refused, each_call, refused
from .arguments import FUNCTIONS, needed, parameters_of

SCORES = tf.constant([[2.0, 1.0, 0.0], [1.0, 2.0, 3.0]])
OF_CLASSES = "`class_ids` must hold class ids"
LINEAR = ops.Regularizer(lambda u: u, lambda x: x * x / 2)


def loss(*lists):
    return losses.PairwiseLogisticLoss().compute(ops.as_lists(*lists))


@pytest.mark.parametrize("ids", [[[7], [0]], [[-2], [0]]])
def test_ids_outside_raise_or_are_nan(ids):
    with refused("`class_ids` must hold class ids in .0, 3."):
        loss(SCORES, ids)
    compiled = tf.function(loss, jit_compile=True)
    for relevance in (None, tf.zeros([2, 1]), tf.ones([2, 1])):
        for mask in (None, tf.constant([[False, True, True], [True, True, True]])):
            value = compiled(SCORES, tf.constant(ids), relevance, mask).numpy()
            expected = loss(SCORES, [[-1], [0]], relevance, mask)[1]
            assert np.isnan(value[0]) and value[1] == pytest.approx(float(expected))


@pytest.mark.parametrize("ids", [[[7], [0]], [[-2], [0]]], ids=["above", "below"])
def test_ranks_of_ids_outside_raise_or_are_nan(ids):
    """On a GPU they would be those of other scores."""
    for function in (ops.expected_ranks, ops.ranks_of_positives):
        assert_refused(function, OF_CLASSES, SCORES, ids)
        found = tf.function(function, jit_compile=True)(SCORES, tf.constant(ids))
        above = found if function is ops.expected_ranks else found[0]
        expected = 3 if function is ops.expected_ranks else 2
        assert_array_equal(above, [[np.nan], [expected]])


MASKED = [name for name in FUNCTIONS if "mask" in parameters_of(name)]


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize(
    "bad", [np.ones((2, 3)), np.ones((1, 3), bool), np.ones(3, bool)]
)
def test_masks_are_booleans_of_all_scores(name, bad):
    with refused("`mask` must be booleans of the shape of the scores"):
        FUNCTIONS[name](**{**needed(name, "class_ids"), "mask": bad})


LISTS = ops.as_lists([[2.0, 1.0, 0.0]], [0])
ERRORS = [
    *(
        (
            lambda name=name: ops.as_lists(LISTS, **{name: [[0]]}),
            f"`{name}` must be None where `sc",
        )
        for name in ("class_ids", "relevance", "mask")
    ),
    (ops.as_lists, f"{OF_CLASSES} of shape", SCORES, np.zeros((2, 1, 1), int)),
    (ops.ranks_of_positives, "the shape of `class_ids`", SCORES, [[0], [1]], [[1.0]]),
    (ops.ranks_of_positives, f"{OF_CLASSES} as integers. .*bool", SCORES, [[True]] * 2),
    (
        ops.ranks_of_positives,
        "`scores` must be numbers. .*: string",
        [["3", "1"]],
        [[0]],
    ),
    (
        ops.ranks_of_positives,
        r"`class_ids` must have the shape \[batch, P\]",
        SCORES,
        [0],
    ),
    # A discount of NumPy would have no gradient.
    (
        lambda: ops.soft_ndcg(
            [[2.0]], [[1.0]], discount=lambda rank: 1 / np.log2(1 + rank)
        ),
        "`discount` must return a tensor",
    ),
    (ops.euclidean_projection, "`k` must be at most the number of items, 3", SCORES, 4),
    (ops.entropy_projection, "`k` must be at most the number of items, 3", SCORES, 4),
    (
        ops.simplex_projection,
        "`k` must be at most the number of items",
        SCORES,
        LINEAR,
        4,
    ),
    (
        ops.sample_distinct,
        r"`size` must be in \[1, 5\]. Received: size=6",
        5,
        6,
        [1, 2],
    ),
]


@each_call(ERRORS)
def test_errors(call, message):
    with refused(message):
        call()


def test_ids_of_each_shape():
    specs = [tf.TensorSpec([None, 3]), tf.TensorSpec([None, None], tf.int32)]
    step = tf.function(loss, [*specs, tf.TensorSpec([None, None])])
    none = tf.zeros([2, 0], tf.int32)
    ranks = ops.ranks_of_positives(SCORES, none, tf.zeros([2, 0]))
    assert ranks.above.shape == ranks.tied.shape == (2, 0)
    for compute in (loss, step):
        assert_array_equal(compute(SCORES, none, tf.zeros([2, 0])), loss(SCORES))
    ragged = tf.ragged.constant([[0], [2, 1]])
    assert_array_equal(loss(SCORES, ragged), loss(SCORES, [[0, -1], [2, 1]]))
    assert_array_equal(loss(SCORES, [0, 1]), loss(SCORES, [[0], [1]]))
    padded = loss(SCORES, [[-1, 0], [1, -1]], [[9.0, 2.0], [3.0, 9.0]])
    assert_allclose(padded, loss(SCORES, [0, 1], [[2.0], [3.0]]), rtol=1e-6)
    masked = tf.constant([[True, False, True]] * 2)
    expected = loss(SCORES, [[0, -1]] * 2, None, masked)
    assert_array_equal(loss(SCORES, [[0, 1]] * 2, None, masked), expected)


def test_projection_of_bfloat16():
    scores = tf.constant([[2.0, 1.5, 0.0]], tf.bfloat16)
    assert_allclose(ops.simplex_projection(scores, "euclidean"), [[0.75, 0.25, 0.0]])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_counts_of_scores_in_half_precision(dtype):
    """5,000 is no number of bfloat16, and 5,001 none of float16."""
    scores = tf.cast(tf.concat([tf.ones([2, 5000]), tf.zeros([2, 1])], axis=1), dtype)
    for ids in ([[5000], [0]], [[5000] * 40, [0] * 40]):
        ranks = ops.ranks_of_positives(scores, ids)
        assert_array_equal(ranks.above[:, 0], [5000, 0])
        assert_array_equal(ranks.tied[:, 0], [1, 5000])
        assert_array_equal(ops.expected_ranks(scores, ids)[:, 0], [5001, 2500.5])


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_scores_may_be_large_integers(dtype):
    """Such as times in seconds, which float32 would make ties."""
    scores = tf.constant([[0, 1, 2, 3]], dtype) + 1_700_000_000
    assert_array_equal(ops.expected_ranks(scores, [[0, 1, 2, 3]]), [[4, 3, 2, 1]])
    assert ops.ranks_of_positives(scores, [[0]]).above == 3
    lists = ops.as_lists(scores, [[2]])
    assert lists.dtype == tf.float64 and lists.sum_over_differences(tf.nn.relu) == 1


# Numbers that may be 0, negative or anything.
OF_ANY_SIZE = {"batch", "data", "relevance", "width"}
OF_NUMBERS = {int, float, "int", "<class 'int'>", "float", "<class 'float'>"}
ARGUMENTS = [
    (name, *item) for name in FUNCTIONS for item in parameters_of(name).items()
]
NUMBERS = [
    (name, argument)
    for name, argument, parameter in ARGUMENTS
    if (argument not in OF_ANY_SIZE and name != "soft_recall")
    and {type(parameter.default), str(parameter.annotation).replace(" | None", "")}
    & OF_NUMBERS
]
assert {"k", "margin", "temperature", "alpha"} <= {a for _, a in NUMBERS}


@pytest.mark.parametrize("name, argument", NUMBERS)
def test_numbers_out_of_range_raise(name, argument):
    for value in (-1, -0.5, float("nan"), float("inf"), "1", True):
        with refused(f"`{argument}` must be .*{argument}={value!r}"):
            FUNCTIONS[name](**{**needed(name, "class_ids"), argument: value})


# Arguments that are one of some names, a layer or function of the user's aside.
NAMED = [
    (name, x) for name, x, parameter in ARGUMENTS if "str" in str(parameter.annotation)
]


@pytest.mark.parametrize("name, argument", NAMED)
def test_unknown_names_raise(name, argument):
    with refused(f"`{argument}` must be .*Received: .*'nonsense'"):
        FUNCTIONS[name](**{**needed(name), argument: "nonsense"})


@pytest.mark.parametrize("dtype, limit", [(tf.float32, 128), (tf.float64, 1024)])
def test_gain_is_infinite_beyond_the_largest_number(dtype, limit):
    labels = tf.constant([limit - 1, limit - 0.5, limit, limit + 0.5, limit + 1], dtype)
    gains = ops.get_gain("exponential")(labels).numpy()
    assert np.isfinite(gains[:2]).all() and (gains[2:] == np.inf).all()


def test_exponential_goes_on_as_its_tangent():
    margins = tf.constant([-100.0], tf.float64)
    values, slopes = value_and_gradient(ops.get_phi("exponential"), margins)
    assert_allclose(values, [math.exp(80) * (1 + 20)], rtol=1e-12)
    assert_allclose(slopes, [-math.exp(80)], rtol=1e-12)
