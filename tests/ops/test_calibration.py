"""Temperature, calibration error and conformal thresholds against NumPy and SciPy in float64."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize, special

from rank4class_tf import ops


def labelled(rng, n=6, batch=200, temperature=2.0):
    """Scores, and classes drawn from their softmax."""
    scores = 3 * rng.normal(size=(batch, n))
    shares = special.softmax(scores / temperature, axis=1)
    return scores, np.array([rng.choice(n, p=row) for row in shares])


def likelihood(scores, targets, weights, exponent):
    return -(weights @ (targets * special.log_softmax(scores * np.exp(exponent), axis=1)).sum(1))


def scipy_temperature(scores, targets, weights):
    """SciPy's minimum; a flat one is found to the root of the resolution of the values."""
    found = optimize.minimize_scalar(
        lambda exponent: likelihood(scores, targets, weights, exponent), bracket=(-1, 1), tol=1e-12
    )
    return np.exp(-found.x)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_temperature(jit_compile, rng):
    scores, ids = labelled(rng)
    weights = rng.uniform(size=len(ids))
    fit = tf.function(
        lambda s: ops.best_temperature(ops.as_lists(s, ids), tf.constant(weights)),
        jit_compile=jit_compile,
    )
    actual = float(fit(tf.constant(scores)))
    assert actual == pytest.approx(scipy_temperature(scores, np.eye(6)[ids], weights), rel=1e-6)
    # The slope of the likelihood at the minimum, by central differences.
    near = [likelihood(scores, np.eye(6)[ids], weights, -np.log(actual) + h) for h in (-1e-4, 1e-4)]
    assert abs(near[1] - near[0]) < 1e-9 * near[0]


def test_temperature_with_several_positives_and_masked_items(rng):
    scores, _ = labelled(rng)
    relevance = (3 * rng.normal(size=scores.shape) + scores > 3).astype(float)
    relevance[:5] = 0  # Lists that do not count.
    mask = (rng.uniform(size=scores.shape) < 0.8) | (relevance > 0)
    ids = np.where(relevance > 0, np.arange(6), -1)
    scores[0] = np.nan
    lists = ops.as_lists(tf.constant(scores), ids, mask=mask)
    actual = float(ops.best_temperature(lists, tf.ones([len(ids)], tf.float64)))
    counted = relevance.sum(1) > 0
    targets = relevance[counted] / relevance[counted].sum(1, keepdims=True)
    masked = np.where(mask, scores, -1e9)[counted]  # e**-1e9 is 0.
    expected = scipy_temperature(masked, targets, np.ones(counted.sum()))
    assert actual == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("scale", "shift"), [(1e-12, 0.0), (1e15, 7.0)])
def test_temperature_scales_with_the_scores(scale, shift, rng):
    scores, ids = labelled(rng)
    weights = tf.ones([len(ids)], tf.float64)
    first = float(ops.best_temperature(ops.as_lists(tf.constant(scores), ids), weights))
    moved = tf.constant((scores + shift) * scale)
    assert float(ops.best_temperature(ops.as_lists(moved, ids), weights)) == pytest.approx(
        scale * first, rel=1e-10
    )


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([[3.0, 1.0], [0.5, 0.0]], 0.0),
        ([[1.0, 1.0], [0.5, 0.5]], 0.0),
        ([[0.0, 1.0], [0.5, 0.0]], np.inf),
        ([[0.0, 1.0], [np.nan, 0.0]], np.nan),
    ],
)
def test_no_best_temperature(scores, expected):
    lists = ops.as_lists(tf.constant(scores, tf.float64), [0, 0])
    actual = float(ops.best_temperature(lists, tf.ones([2], tf.float64)))
    np.testing.assert_equal(actual, expected)


@pytest.mark.parametrize("num_bins", [1, 7, 15])
def test_calibration_error(num_bins, rng):
    confidence, right = rng.uniform(size=300), (rng.uniform(size=300) < 0.6).astype(float)
    confidence[:3] = 0.0, 1.0, 1 / num_bins
    weights = rng.uniform(size=300)
    edges = np.arange(num_bins + 1) / num_bins
    expected = 0.0
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        inside = (confidence > low) & (confidence <= high) | (low == 0) & (confidence == 0)
        if inside.any():
            w = weights[inside]
            gap = (w @ right[inside] - w @ confidence[inside]) / w.sum()
            expected += w.sum() / weights.sum() * abs(gap)
    terms = tf.constant(np.stack([weights, weights * confidence, weights * right], axis=-1))
    bins = ops.calibration_bins(tf.constant(confidence), num_bins)
    sums = tf.math.unsorted_segment_sum(terms, bins, num_bins)
    assert float(ops.expected_calibration_error(sums)) == pytest.approx(expected, rel=1e-12)


def test_mass_not_above(rng):
    p = rng.dirichlet(np.ones(9), size=20)
    p[0] = [0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625, 0.125, 0.0, 0.0]  # Exact sums with ties.
    expected = [[(row * (row <= x)).sum() for x in row] for row in p]
    np.testing.assert_allclose(ops.mass_not_above(tf.constant(p)), expected, rtol=1e-12)


def test_small_masses_keep_their_digits():
    p = tf.constant([[1.0, 1e-20, 3e-30, 1e-30]])
    np.testing.assert_allclose(ops.mass_not_above(p)[0, 1:], [1e-20, 4e-30, 1e-30], rtol=1e-6)


@pytest.mark.parametrize("n", [9, 10, 19, 57])
@pytest.mark.parametrize("coverage", [0.07, 0.5, 0.7, 0.9])
def test_threshold_has_its_coverage(n, coverage, rng):
    """Each of N + 1 exchangeable values is the new one equally often: coverage by counting."""
    values = rng.permutation(n + 1) / 7.0
    reached = [
        values[i] >= ops.conformal_threshold(np.delete(values, i), coverage) for i in range(n + 1)
    ]
    # coverage <= share < coverage + 1 / (N + 1), in exact decimals.
    assert round(coverage * 100) * (n + 1) <= 100 * sum(reached)
    assert 100 * sum(reached) < round(coverage * 100) * (n + 1) + 100


def test_too_few_examples_for_a_threshold():
    assert ops.conformal_threshold(np.ones(19), 0.95) == 1
    message = "at least 19 examples for coverage=0.95. Received: 18"
    with pytest.raises(ValueError, match=message):
        ops.conformal_threshold(np.ones(18), 0.95)
