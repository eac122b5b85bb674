"""Samples without replacement: which items, how often, in every mode."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from rank4class_tf import ops

DRAWS = 20_000


def samples(eligible, num_sampled, seed=(3, 4)):
    """Many samples of the same list, each sorted."""
    lists = np.tile(eligible, (DRAWS, 1))
    return ops.sample_items(seed, lists, num_sampled).numpy()


def test_all_subsets_are_equally_frequent():
    eligible = np.array([True, False, True, True, True, False, True])
    drawn = samples(eligible, num_sampled=2)
    counts = collections.Counter(map(tuple, np.sort(drawn, axis=1)))
    subsets = list(itertools.combinations(np.flatnonzero(eligible), 2))
    assert set(counts) == set(subsets)
    assert stats.chisquare([counts[s] for s in subsets]).pvalue > 1e-3
    # Order is random too.
    orders = collections.Counter(map(tuple, drawn))
    assert stats.chisquare([orders[o] for s in subsets for o in (s, s[::-1])]).pvalue > 1e-3


def test_chi_squared_finds_a_bias():
    """The test above can fail: a sampler that prefers one subset by a fifth is found."""
    counts = np.full(10, DRAWS / 10)
    counts[0] *= 1.2
    assert stats.chisquare(counts, np.full(10, counts.mean())).pvalue < 1e-3


def test_lists_are_independent():
    drawn = samples(np.full(4, True), num_sampled=1)[:, 0]
    table = np.zeros((4, 4))
    np.add.at(table, (drawn[:-1:2], drawn[1::2]), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("num_sampled", [1, 30, 400])
def test_no_duplicate_and_nothing_else(rng, num_sampled):
    eligible = rng.random((50, 500)) < 0.9
    drawn = ops.sample_items([5, 6], eligible, num_sampled).numpy()
    assert drawn.shape == (50, num_sampled)
    for row, ids in enumerate(drawn):
        assert len(set(ids)) == num_sampled
        assert eligible[row, ids].all()


def test_few_eligible_items_are_all_there():
    eligible = np.array([[True, False, True, False], [False] * 4, [True] * 4])
    drawn = np.sort(ops.sample_items([0, 0], eligible, 6).numpy(), axis=1)
    expected = [[-1] * 4 + [0, 2], [-1] * 6, [-1, -1, 0, 1, 2, 3]]
    np.testing.assert_array_equal(drawn, expected)


def test_seed_decides_alone():
    eligible = np.full((3, 40), True)
    first = ops.sample_items([1, 2], eligible, 5).numpy()
    np.testing.assert_array_equal(ops.sample_items([1, 2], eligible, 5), first)
    assert (ops.sample_items([1, 3], eligible, 5).numpy() != first).any()
    assert (first[0] != first[1]).any()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_and_xla_draw_the_same(rng, jit_compile):
    eligible = rng.random((6, 40)) < 0.7
    function = tf.function(lambda e: ops.sample_items([1, 2], e, 9), jit_compile=jit_compile)
    expected = ops.sample_items([1, 2], eligible, 9)
    np.testing.assert_array_equal(function(tf.constant(eligible)), expected)
