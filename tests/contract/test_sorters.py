"""What holds for every sorter."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

import rank4class_tf as r4c

from .. import derivatives
from ..refused import refused
from ..rounding import assert_same_sums, longest_sum
from .tables import SORTERS

pytestmark = pytest.mark.parametrize("case", SORTERS)

BATCH = 4


@pytest.fixture
def size(case):
    return case.length or 7


@pytest.fixture
def scores(normal, size):
    return normal(BATCH, size)


@pytest.fixture
def weights(normal, size):
    return normal(BATCH, size)


def value_and_gradient(sorter, scores, weights, mask=None):
    sort = sorter if mask is None else functools.partial(sorter, mask=mask)
    upstream = tf.broadcast_to(tf.cast(weights, sort(scores).dtype), np.shape(scores))
    return [x.numpy() for x in derivatives.value_and_gradient(sort, scores, upstream)]


def test_ranks_are_floats_from_1_for_the_best(case, scores, size):
    ranks = case.make()(scores)
    assert ranks.shape == scores.shape and ranks.dtype == tf.float32
    assert (ranks.numpy() > 0).all() and (ranks.numpy() < size + 1).all()
    for ours, exact in zip(ranks.numpy(), np.argsort(np.argsort(-scores)), strict=True):
        assert np.corrcoef(ours, exact)[0, 1] > 0.8


def test_permuted_scores_have_permuted_ranks(case, scores, weights, rng, size):
    if not case.equivariant:
        pytest.skip("It promises none.")
    sorter = case.make()
    order = rng.permutation(size)
    ranks, gradient = value_and_gradient(sorter, scores, weights)
    permuted = value_and_gradient(sorter, scores[:, order], weights[:, order])
    assert_allclose(permuted[0], ranks[:, order], rtol=1e-4)
    assert_allclose(permuted[1], gradient[:, order], rtol=1e-3, atol=1e-4)
    ties = np.ones((1, size), "float32")
    ties[0, 0] = 2
    assert np.ptp(sorter(ties)[0, 1:]) < 1e-5


def test_masked_is_removed(case, scores, weights, size):
    if case.length:
        pytest.skip("It takes one length.")
    mask = np.ones((BATCH, size), bool)
    mask[:, [0, 3]] = False
    mask[:, 1] = [True, False, True, False]  # Lists mask different items.
    sorter = case.make()
    alone = [
        value_and_gradient(sorter, scores[row : row + 1, keep], weights[row, keep])
        for row, keep in enumerate(mask)
    ]
    scores[:, [0, 3]] = [[0.5, -1e15], [np.inf, 0.5], [-np.inf, np.inf], [np.nan, 0.5]]
    actual = value_and_gradient(sorter, scores, weights, mask)
    for ours, expected in zip(actual, zip(*alone, strict=True), strict=True):
        assert_array_equal(ours[~mask], 0)
        for row, keep in enumerate(mask):
            assert_allclose(ours[row, keep], expected[row][0], rtol=1e-3, atol=1e-5)
    assert_array_equal(sorter(scores, mask), actual[0])
    none = value_and_gradient(sorter, scores, weights, np.zeros_like(mask))
    assert_array_equal(none, np.zeros_like(none))


def test_nan_shows_in_its_list_alone(case, scores, weights, size):
    sorter = case.make()
    expected = value_and_gradient(sorter, scores[1:], weights[1:])
    scores[0, 2] = np.nan
    for ours, others in zip(
        value_and_gradient(sorter, scores, weights), expected, strict=True
    ):
        assert np.isnan(np.delete(ours[0], 2)).all()
        assert_same_sums(ours[1:], others, longest_sum(sorter, size))


@pytest.mark.parametrize("scale", [1e15, 1e-15, 3e38])
def test_extremes_are_finite(case, scores, weights, scale):
    scores = np.clip(scores, -1, 1) * np.float32(scale)
    scores[0, :2] = np.inf
    scores[1, 2] = -np.inf
    ranks, gradient = value_and_gradient(case.make(), scores, weights)
    assert np.isfinite(ranks).all() and np.isfinite(gradient).all()
    if case.exact and scale == 1e15:
        assert ranks[1, 2] == scores.shape[1]
        assert_allclose(ranks[0, :2], 1.5)


def test_half_and_double_precision(case, scores, weights):
    sorter = case.make()
    for dtype in (tf.float16, tf.bfloat16):
        half = tf.cast(scores, dtype)
        expected = value_and_gradient(sorter, tf.cast(half, tf.float32), weights)
        ranks, gradient = value_and_gradient(sorter, half, weights)
        assert ranks.dtype == np.float32
        assert_array_equal(ranks, expected[0])
        assert_array_equal(gradient, tf.cast(expected[1], dtype))
    ranks = sorter(scores.astype(np.float64))
    assert ranks.dtype == tf.float64
    assert_allclose(ranks, sorter(scores), rtol=1e-4)


@pytest.mark.keras2
def test_mixed_precision_changes_nothing(case, scores, mixed_precision):
    model = keras.Sequential([keras.Input((scores.shape[1],)), case.make()])
    assert model(tf.cast(scores, tf.bfloat16)).dtype == tf.float32
    assert_array_equal(case.make()(scores), case.make(dtype="float32")(scores))


slow = pytest.mark.slow
MODES = [
    "unknown shape",
    *(pytest.param(x, marks=slow) for x in ("unknown xla", "xla")),
]


@pytest.mark.parametrize("mode", MODES)
def test_graph_and_xla_equal_eager(case, scores, weights, size, mode):
    if case.length and mode == "xla":
        pytest.skip("A sorter of one length compiles alike for unknown batch sizes.")
    mask = None if case.length else tf.constant(scores < 1)
    sorter = case.make()
    expected = value_and_gradient(sorter, scores, weights, mask)

    def compute(scores):
        return derivatives.value_and_gradient(
            lambda x: sorter(x, mask=mask), scores, weights
        )

    shape = [None, case.length] if "unknown" in mode else scores.shape
    compiled = tf.function(compute, [tf.TensorSpec(shape)], jit_compile="xla" in mode)
    for actual, e in zip(compiled(scores), expected, strict=True):
        assert_allclose(actual, e, rtol=1e-4, atol=1e-5 + 1e-6 * np.abs(e).max())


def test_a_single_item_has_rank_1(case):
    if case.length:
        pytest.skip("It takes one length.")
    ranks, gradient = value_and_gradient(
        case.make(), np.array([[3.0], [-1.0]]), np.ones((2, 1))
    )
    if case.exact:
        assert_array_equal(ranks, [[1], [1]])
        assert_allclose(gradient, [[0], [0]], atol=1e-12)
    assert case.make()(np.zeros((2, 0), "float32")).shape == (2, 0)


@pytest.mark.keras2
def test_files_keep_the_ranks(case, scores, size, tmp_path, reloaded):
    def new(change):
        inputs = keras.Input((size,))
        model = keras.Model(inputs, case.make()(keras.layers.Dense(size)(inputs)))
        model.set_weights([x + change for x in model.get_weights()])
        return model

    model = new(0.01)
    other = new(0.0)
    sorter = model.layers[-1]
    copy = r4c.layers.get_sorter(keras.utils.serialize_keras_object(sorter))
    assert type(copy) is type(sorter) and copy.get_config() == sorter.get_config()
    loaded = reloaded(model)
    assert_array_equal(loaded(scores), model(scores))
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=other).restore(path)
    assert_array_equal(other(scores), model(scores))


def test_a_model_may_give_scores_and_mask(case, scores, size):
    if case.length:
        pytest.skip("It takes one length.")
    inputs = keras.Input((size,)), keras.Input((size,), dtype="bool")
    sorter = case.make()
    mask = scores < 1
    ranks = keras.Model(inputs, sorter(inputs[0], mask=inputs[1]))([scores, mask])
    assert_allclose(ranks, sorter(scores, mask), rtol=1e-5)


def test_shapes_are_checked(case, scores):
    sorter = case.make()
    with refused(r"`scores` must have the shape \[batch, d\]"):
        sorter(scores[0])
    with refused(r"`mask` must be booleans .*Received: float32"):
        sorter(scores, mask=np.ones_like(scores))
    with refused(r"`mask` must be booleans .*Received: bool \(4, 1\)"):
        sorter(scores, mask=scores[:, :1] > 0)
