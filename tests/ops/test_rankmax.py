"""Rankmax against references by bisection, and what the paper says of it."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import ops

from . import projections


def value_and_gradient(scores, ids, **kwargs):
    scores = tf.convert_to_tensor(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = ops.rankmax_loss(scores, np.asarray(ids, np.int32), **kwargs)
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
    probabilities = ops.rankmax(z[None], ids[None], k, margin).numpy()[0]
    expected = [projections.rankmax(z, y, k, margin) for y in ids]
    np.testing.assert_allclose(probabilities, expected, atol=1e-9)


def test_gradient_of_the_projection():
    z = np.array([2.0, 0.3, -0.2, 1.1, 0.9])
    weights = np.array([1.0, -2.0, 0.5, 3.0, 0.7])
    for y in range(5):
        scores = tf.constant(z[None])
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = tf.reduce_sum(ops.rankmax(scores, [[y]], k=2) * weights)
        expected = projections.slope(lambda z, y=y: weights @ projections.rankmax(z, y, 2), z)
        np.testing.assert_allclose(tape.gradient(value, scores)[0], expected, atol=1e-6)


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
    np.testing.assert_allclose(ops.rankmax(z, [[0, 1]], k=3), np.ones((1, 2, 3)))
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
    # 0 is far above the others and selected whole; the three share what is left: 1 / 3 each.
    expected = [[1, 1 / 3, 1 / 3, 1 / 3, 0]]
    np.testing.assert_allclose(ops.rankmax(z, [[1]], k=2)[0], expected)


def test_margin_scales_with_the_scores(rng):
    z, ids = rng.normal(size=(3, 9)), rng.integers(0, 9, (3, 2))
    for k in (1, 4):
        expected = ops.rankmax_loss(z, ids, k=k)
        np.testing.assert_allclose(ops.rankmax_loss(z * 7, ids, k=k, margin=7.0), expected)
        projection = ops.rankmax(z, ids, k)
        np.testing.assert_allclose(ops.rankmax(z * 7, ids, k, 7.0), projection, atol=1e-12)


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
        value = ops.rankmax_loss((z + offset).astype(np.float32), some, k=k)
        np.testing.assert_allclose(value, ops.rankmax_loss(z, some, k=k), rtol=2e-6, atol=2e-6)


def test_padding_weights_and_mean(rng):
    z = rng.normal(size=(1, 9))
    single = [ops.rankmax_loss(z, [[y]], k=2).numpy()[0] for y in (4, 7)]
    weights = [[2.0, 9.0, 3.0]]
    ids = [[4, -1, 7]]
    total = ops.rankmax_loss(z, ids, weights, k=2)
    np.testing.assert_allclose(total, [2 * single[0] + 3 * single[1]])
    mean = ops.rankmax_loss(z, ids, weights, k=2, positive_reduction="mean")
    np.testing.assert_allclose(mean, total / 5)
    for k in (1, 2):
        value, gradient = value_and_gradient(z, [[-1, -1]], k=k, positive_reduction="mean")
        np.testing.assert_array_equal(value, [0.0])
        np.testing.assert_array_equal(gradient, np.zeros((1, 9)))
    assert ops.rankmax_loss(z, np.zeros((1, 0), np.int32)).numpy() == [0.0]
    np.testing.assert_array_equal(ops.rankmax(z, [[-1]]), np.zeros((1, 1, 9)))


def test_k_is_checked():
    with pytest.raises(
        ValueError, match="`k` must be at most the number of items, 3. Received: k=4"
    ):
        ops.rankmax_loss(np.zeros((1, 3)), [[0]], k=4)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize("width", [1, 5, 37])
def test_long_lists(rng, jit_compile, k, width):
    z = rng.normal(size=(2, 2003)) * 2
    ids = np.stack([rng.permutation(2003)[:width] for _ in range(2)]).astype(np.int32)
    compiled = tf.function(lambda z, ids: ops.rankmax_loss(z, ids, k=k), jit_compile=jit_compile)
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
def test_properties(z, y, k):
    z, y, k = np.array(z), y % len(z), min(k, len(z))
    x = ops.rankmax(z[None], [[y]], k).numpy()[0, 0]
    assert x.sum() == pytest.approx(k)
    assert (x >= 0).all() and (x <= 1).all() and x[y] > 0
    order = np.argsort(z)
    assert (np.diff(x[order]) >= -1e-12).all()
    shifted = ops.rankmax((z + 3)[None], [[y]], k).numpy()[0, 0]
    np.testing.assert_allclose(shifted, x, atol=1e-9)
    # Items below both the label and the k-th score by more than the margin get nothing.
    below = z < min(z[y], np.sort(z)[-k]) - 1
    assert (x[below] == 0).all()
    loss, gradient = value_and_gradient(z[None], [[y]], k=k)
    np.testing.assert_allclose(loss, [-np.log(x[y])], atol=1e-9)
    np.testing.assert_allclose(gradient.sum(), 0, atol=1e-9)
