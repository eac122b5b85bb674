"""The Rankmax loss against references by bisection, and what the paper says of it."""

import functools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import ops
from rank4class_tf.losses import RankmaxLoss

from ..ops import projections
from .formula import value_of


def value_and_gradient(scores, ids, **kwargs):
    scores = tf.convert_to_tensor(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = value_of(RankmaxLoss(**kwargs), scores, np.asarray(ids, np.int32))
    return value.numpy(), tape.gradient(value, scores).numpy()


@pytest.mark.parametrize("seed", range(40))
def test_value_and_gradient_against_bisection(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 14))
    k, width = (int(x) for x in rng.integers(1, n + 1, size=2))
    margin = rng.choice([0.3, 1.0, 2.5])
    z = rng.normal(size=n) * rng.choice([0.3, 1.0, 5.0])
    ids = rng.permutation(n)[:width]
    expected = projections.rankmax_loss(z, ids, k, margin)
    slope = projections.slope(lambda z: projections.rankmax_loss(z, ids, k, margin), z)
    many = rng.permutation(np.append(ids, np.full(20 - width, -1)))
    for columns in (ids, many):  # Few and many columns take different routes.
        value, gradient = value_and_gradient(z[None], columns[None], k=k, margin=margin)
        np.testing.assert_allclose(value, [expected], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(gradient[0], slope, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradient.sum(), 0, atol=1e-9)


def test_erratum_of_equation_16():
    z = np.array([0.5, 0.2, 1.1, -2.0])  # all but the last are within 1 of z_0
    inner_sum = 1 + (0.2 - 0.5 + 1) + (1.1 - 0.5 + 1)
    value, gradient = value_and_gradient(z[None], [[0]])
    np.testing.assert_allclose(value, [np.log(inner_sum)])
    # The support counts y itself: s = 3. The paper prints -s / S for y, whose sum is not 0.
    expected = np.array([-(3 - 1), 1, 1, 0]) / inner_sum
    np.testing.assert_allclose(gradient[0], expected)
    assert abs(sum([-3, 1, 1, 0])) > 0
    numeric = projections.slope(lambda z: projections.rankmax_loss(z, [0], 1), z)
    np.testing.assert_allclose(gradient[0], numeric, atol=1e-6)


def test_all_items_selected_have_no_loss():
    z = np.array([[1.0, -3.0, 0.5]])
    value, gradient = value_and_gradient(z, [[0, 1]], k=3)
    np.testing.assert_array_equal(value, [0.0])
    np.testing.assert_array_equal(gradient, np.zeros((1, 3)))
    # So have lists of fewer items than k.
    z = np.array([[1.0, -np.inf, 0.5, -np.inf]])
    value, gradient = value_and_gradient(z, [[0, 2]], k=3)
    np.testing.assert_array_equal(value, [0.0])
    np.testing.assert_array_equal(gradient, np.zeros((1, 4)))


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("level", [0.0, 1000.0, 1e30])
def test_all_equal_scores(k, level):
    value, gradient = value_and_gradient(np.full((1, 8), level, np.float32), [[3]], k=k)
    np.testing.assert_allclose(value, [np.log(8 / k)], rtol=1e-6)
    # S = 8 / k times the margin each; y stands for the level: (1 - 8) / 8.
    np.testing.assert_allclose(gradient[0], np.where(np.arange(8) == 3, -7, 1) / 8, rtol=1e-6)


def test_ties_at_the_kth_score():
    z = np.array([[3.0, 1.0, 1.0, 1.0, -5.0]])
    for y in range(4):
        value, gradient = value_and_gradient(z, [[y]], k=2)
        np.testing.assert_allclose(value, [projections.rankmax_loss(z[0], [y], 2)], atol=1e-12)
        np.testing.assert_allclose(gradient.sum(), 0, atol=1e-12)


def test_margin_scales_with_the_scores(rng):
    z, ids = rng.normal(size=(3, 9)), rng.integers(0, 9, (3, 2))
    for k in (1, 4):
        expected = value_of(RankmaxLoss(k), z, ids)
        np.testing.assert_allclose(value_of(RankmaxLoss(k, margin=7.0), z * 7, ids), expected)


@pytest.mark.parametrize("k", [1, 3])
def test_far_apart_scores(k):
    # As far as float64 can tell apart with the margin, which the reference needs.
    z = np.array([[1e12, 0.5, 0.2, -1e12, 1e12, 1e12, -0.1]], np.float32)
    for y in range(7):
        value, gradient = value_and_gradient(z, [[y]], k=k)
        expected = projections.rankmax_loss(z[0], [y], k)
        np.testing.assert_allclose(value, [expected], rtol=1e-5, atol=1e-6)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("offset", [0.0, 1000.0, -1e6])
def test_an_offset_costs_no_digits(rng, k, offset):
    # Multiples of 1/8 are exact in float32 at any of these offsets.
    z = rng.integers(-40, 40, (4, 50)) / 8
    ids = np.stack([rng.permutation(50)[:20] for _ in range(4)])
    for some in (ids, ids[:, :6], ids[:, :1]):
        value = value_of(RankmaxLoss(k), (z + offset).astype(np.float32), some)
        expected = value_of(RankmaxLoss(k), z, some)
        np.testing.assert_allclose(value, expected, rtol=2e-6, atol=2e-6)


def test_padding_weights_and_mean(rng):
    z = rng.normal(size=(1, 9))
    single = [value_of(RankmaxLoss(2), z, [[y]]).numpy()[0] for y in (4, 7)]
    weights = [[2.0, 9.0, 3.0]]
    ids = [[4, -1, 7]]
    total = value_of(RankmaxLoss(2), z, ids, weights)
    np.testing.assert_allclose(total, [2 * single[0] + 3 * single[1]])
    mean = value_of(RankmaxLoss(2, positive_reduction="mean"), z, ids, weights)
    np.testing.assert_allclose(mean, total / 5)
    for k in (1, 2):
        value, gradient = value_and_gradient(z, [[-1, -1]], k=k, positive_reduction="mean")
        np.testing.assert_array_equal(value, [0.0])
        np.testing.assert_array_equal(gradient, np.zeros((1, 9)))
    assert value_of(RankmaxLoss(), z, np.zeros((1, 0), np.int32)).numpy() == [0.0]


def test_arguments_are_checked():
    with pytest.raises(
        ValueError, match="`k` must be at most the number of items, 3. Received: k=4"
    ):
        value_of(RankmaxLoss(4), np.zeros((1, 3)), [[0]])
    with pytest.raises(ValueError, match="`positive_reduction` must be one of"):
        RankmaxLoss(positive_reduction="max")


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize("width", [1, 5, 37])
def test_long_lists(rng, jit_compile, k, width):
    z = rng.normal(size=(2, 2003)) * 2
    ids = np.stack([rng.permutation(2003)[:width] for _ in range(2)]).astype(np.int32)
    compiled = tf.function(functools.partial(value_of, RankmaxLoss(k)), jit_compile=jit_compile)
    expected = [
        projections.rankmax_loss(row, row_ids, k) for row, row_ids in zip(z, ids, strict=True)
    ]
    if not jit_compile:
        np.testing.assert_allclose(compiled(tf.constant(z), tf.constant(ids)), expected, rtol=1e-9)
    value = compiled(tf.constant(z, tf.float32), tf.constant(ids))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    st.lists(st.floats(-100, 100), min_size=2, max_size=9),
    st.integers(0, 8),
    st.integers(1, 9),
)
def test_is_minus_the_log_of_the_projection(z, y, k):
    z, y, k = np.array(z), y % len(z), min(k, len(z))
    x = ops.rankmax(z[None], [[y]], k).numpy()[0, 0]
    loss, gradient = value_and_gradient(z[None], [[y]], k=k)
    np.testing.assert_allclose(loss, [-np.log(x[y])], atol=1e-9)
    np.testing.assert_allclose(gradient.sum(), 0, atol=1e-9)
