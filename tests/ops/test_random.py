"""Random numbers from hashes: uniform, independent, the same in all modes."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from rank4class_tf.ops import sampling

SIZE = 1 << 18


def draw(*seed, size=SIZE):
    return sampling.uniform([size], seed, tf.float64).numpy()


def test_is_uniform():
    for seed in ((0, 0), (0, 1), (1, 0), (2**40, 3), (-5, 7)):
        values = draw(*seed)
        assert 0 < values.min() and values.max() < 1
        assert scipy.stats.kstest(values, "uniform").pvalue > 1e-4


def test_each_bit_is_fair_and_independent_of_its_neighbours():
    bits = (draw(3, 4) * 2**23).astype(np.int64)[:, None] >> np.arange(23) & 1
    signs = 2.0 * bits - 1
    bound = 5 / np.sqrt(SIZE)
    assert np.abs(signs.mean(axis=0)).max() < bound
    pairs = signs.T @ signs / SIZE
    assert np.abs(pairs - np.eye(23)).max() < bound
    for lag in (1, 2, 3, 10, 1000, 1 << 16):
        assert np.abs((signs[lag:].T @ signs[:-lag]) / (SIZE - lag)).max() < 6 / np.sqrt(SIZE - lag)


@pytest.mark.parametrize("other", [(1, 3), (2, 2), (1 + 2**32, 2), (1, 2 + 2**32)])
def test_seeds_give_independent_draws(other):
    a, b = draw(1, 2), draw(*other)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(SIZE)
    cells, _, _ = np.histogram2d(a, b, bins=16)
    assert scipy.stats.chisquare(cells.ravel()).pvalue > 1e-4


def test_folded_seeds_are_distinct_and_uniform():
    seeds = tf.stack([sampling.fold_in([5, 0], i) for i in range(500)]).numpy()
    assert len({tuple(seed) for seed in seeds}) == 500
    for half in seeds.T:
        assert len(set(half)) == 500
        assert scipy.stats.kstest(half / 2**32, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(seeds.T)[0, 1]) < 5 / np.sqrt(500)
    first = [draw(*seed, size=1)[0] for seed in seeds]
    assert scipy.stats.kstest(first, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_and_xla_draw_the_same(jit_compile):
    @tf.function(jit_compile=jit_compile)
    def graph(seed, data):
        return sampling.uniform([3, 5], sampling.fold_in(seed, data), tf.float32)

    seed = tf.constant([7, 2**60], tf.int64)
    expected = sampling.uniform([3, 5], sampling.fold_in(seed, 9), tf.float32)
    np.testing.assert_array_equal(graph(seed, tf.constant(9)), expected)


@pytest.mark.parametrize("limit", [3, 1000, 3 * 2**29])
def test_integers_are_uniform(limit):
    values = sampling.uniform_integers([SIZE], (1, 2), limit).numpy()
    assert values.min() >= 0 and values.max() < limit
    bins = min(limit, 64)
    counts = np.bincount(values * bins // limit, minlength=bins)
    # An even share of the integers falls into each bin, up to one.
    expected = np.diff([-(-limit * i // bins) for i in range(bins + 1)]) * (SIZE / limit)
    assert scipy.stats.chisquare(counts, expected).pvalue > 1e-4


def test_integers_are_the_product_with_64_bits():
    seed, limit = (1, 2), 2**31 - 1
    high, low = sampling.bits([2, 100], seed).numpy().astype(object)
    expected = [(a * 2**32 + b) * limit >> 64 for a, b in zip(high, low, strict=True)]
    assert sampling.uniform_integers([100], seed, limit).numpy().tolist() == expected


def test_shapes():
    line = sampling.bits([24], (1, 2)).numpy()
    np.testing.assert_array_equal(sampling.bits([2, 3, 4], (1, 2)).numpy().ravel(), line)
    assert sampling.bits([], (1, 2)).numpy() == line[0]
    assert sampling.bits([3, 0], (1, 2)).shape == (3, 0)


def test_no_two_words_are_equal():
    assert len(set(sampling.bits([SIZE], (3, 1)).numpy())) == SIZE
