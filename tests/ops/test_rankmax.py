"""The Rankmax projection against references by bisection, and what the paper says of it."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses, ops

from . import projections


@pytest.mark.parametrize("seed", range(40))
def test_value_against_bisection(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 14))
    k, width = (int(x) for x in rng.integers(1, n + 1, size=2))
    margin = rng.choice([0.3, 1.0, 2.5])
    z = rng.normal(size=n) * rng.choice([0.3, 1.0, 5.0])
    ids = rng.permutation(n)[:width]
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


def test_all_items_selected_are_1():
    z = np.array([[1.0, -3.0, 0.5]])
    np.testing.assert_allclose(ops.rankmax(z, [[0, 1]], k=3), np.ones((1, 2, 3)))


def test_ties_at_the_kth_score():
    z = np.array([[3.0, 1.0, 1.0, 1.0, -5.0]])
    # 0 is far above the others and selected whole; the three share what is left: 1 / 3 each.
    expected = [[1, 1 / 3, 1 / 3, 1 / 3, 0]]
    np.testing.assert_allclose(ops.rankmax(z, [[1]], k=2)[0], expected)


def test_margin_scales_with_the_scores(rng):
    z, ids = rng.normal(size=(3, 9)), rng.integers(0, 9, (3, 2))
    for k in (1, 4):
        projection = ops.rankmax(z, ids, k)
        np.testing.assert_allclose(ops.rankmax(z * 7, ids, k, 7.0), projection, atol=1e-12)


def test_padding_gives_zeros(rng):
    z = rng.normal(size=(1, 9))
    np.testing.assert_array_equal(ops.rankmax(z, [[-1]]), np.zeros((1, 1, 9)))


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


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_nan_among_the_scores_shows(place, k):
    scores = np.array([[4.0, 3.0, 2.0, 1.0, 0.0]])
    scores[0, place] = np.nan
    assert np.isnan(losses.RankmaxLoss(k)([3], scores))
    assert np.isnan(ops.rankmax(scores, [[3]], k)).all()
    for projection in (ops.euclidean_projection, ops.entropy_projection):
        assert np.isnan(projection(scores, k)).all()
