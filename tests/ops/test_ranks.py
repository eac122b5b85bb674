"""Counts of higher and tied values, by all routes."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf.ops import ranks


def count_above_and_tied(scores, ids, depth=None):
    found = ranks.ranks_of_positives(scores, ids, depth=depth)
    return found.above, found.tied


def counts(values, thresholds):
    compared = values[:, np.newaxis], thresholds[:, :, np.newaxis]
    return np.greater(*compared).sum(axis=-1), np.equal(*compared).sum(axis=-1)


@pytest.mark.parametrize("size", [1, 5, 4095, 4096, 9001])
@pytest.mark.parametrize("width", [1, 3, 40])
@pytest.mark.parametrize("static", [True, False])
def test_counts(rng, size, width, static):
    values = np.round(rng.normal(size=(3, size)), 1).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = np.nan
    values[rng.random(values.shape) < 0.1] = -np.inf
    ids = np.tile(np.append(np.arange(min(width, size)), -1).astype(np.int32), (3, 1))
    positives = np.where(ids >= 0, values[:, ids[0]], np.nan)
    signature = [tf.TensorSpec([3, None]), tf.TensorSpec([3, None], tf.int32)]
    count = tf.function(count_above_and_tied, None if static else signature)
    for actual, expected in zip(count(values, ids), counts(values, positives), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("depth", [1, 3, 20, 100])
def test_depth_leaves_out_only_what_is_below(rng, depth, jit_compile):
    values = np.round(rng.normal(size=(50, 150)), 1).astype(np.float32)
    values[rng.random(values.shape) < 0.2] = np.nan
    values[rng.random(values.shape) < 0.2] = -np.inf
    values[0] = np.nan
    values[1, 2:] = np.nan
    values[2] = 1.0
    count = tf.function(count_above_and_tied, jit_compile=jit_compile)
    ids = np.tile(np.arange(150), (50, 1))
    greater, equal = (c.numpy() for c in count(values, ids, depth))
    expected_greater, expected_equal = counts(values, values)
    counted = equal > 0
    assert (counted | np.isnan(values) | (expected_greater >= depth)).all()
    if depth < 10:
        assert (~counted & ~np.isnan(values)).any()
    np.testing.assert_array_equal(greater[counted], expected_greater[counted])
    np.testing.assert_array_equal(equal[counted], expected_equal[counted])
    np.testing.assert_array_equal(greater[~counted], 0)


@pytest.mark.parametrize("jit_compile", [None, True], ids=["graph", "xla"])
@pytest.mark.parametrize("width", [3, 30])
def test_counts_of_items(rng, width, jit_compile):
    scores = np.round(rng.normal(size=(5, 60)), 1).astype(np.float32)
    scores[rng.random(scores.shape) < 0.1] = np.nan
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    scores[0] = np.nan
    ids = np.stack([rng.permutation(60)[:width] for _ in range(5)]).astype(np.int32)
    ids[:, 1] = -1
    positives = np.where(ids >= 0, np.take_along_axis(scores, np.maximum(ids, 0), 1), np.nan)
    count = tf.function(count_above_and_tied, jit_compile=jit_compile)
    for actual, expected in zip(count(scores, ids), counts(scores, positives), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_counts_of_all_items_under_xla(rng):
    """So many that no tensor of all pairs fits into memory."""
    scores = rng.permuted(np.tile(np.arange(10_000, dtype=np.float32), (256, 1)), axis=1)
    ids = np.tile(np.arange(10_000, dtype=np.int32), (256, 1))
    above, tied = tf.function(count_above_and_tied, jit_compile=True)(scores, ids)
    np.testing.assert_array_equal(above, 9_999 - scores)
    np.testing.assert_array_equal(tied, np.ones_like(scores))
