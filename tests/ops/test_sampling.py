"""Random numbers by hash, samples without replacement: what, how often, each mode."""

import collections
import itertools

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from numpy.testing import assert_array_equal

from rank4class_tf import ops
from rank4class_tf.ops import sampling

SIZE = 1 << 18
DRAWS = 20_000


def draw(*seed, size=SIZE):
    return sampling.uniform([size], seed, tf.float64).numpy()


def test_each_bit_is_fair_and_independent_of_its_neighbours():
    values = draw(3, 4)
    assert 0 < values.min() and values.max() < 1
    bits = (values * 2**23).astype(np.int64)[:, None] >> np.arange(23) & 1
    signs = 2.0 * bits - 1
    bound = 5 / np.sqrt(SIZE)
    assert np.abs(signs.mean(axis=0)).max() < bound
    assert np.abs(signs.T @ signs / SIZE - np.eye(23)).max() < bound
    for lag in (1, 2, 3, 10, 1000, 1 << 16):
        assert np.abs(
            (signs[lag:].T @ signs[:-lag]) / (SIZE - lag)
        ).max() < 6 / np.sqrt(SIZE - lag)


@pytest.mark.parametrize("other", [(1, 3), (2, 2), (1 + 2**32, 2), (1, 2 + 2**32)])
def test_seeds_give_independent_draws(other):
    a = draw(1, 2)
    b = draw(*other)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(SIZE)
    cells, _, _ = np.histogram2d(a, b, bins=16)
    assert scipy.stats.chisquare(cells.ravel()).pvalue > 1e-4


def test_folded_seeds_are_distinct_and_uniform():
    fold = tf.function(lambda number: sampling.fold_in([5, 0], number))
    draw_one = tf.function(lambda seed: sampling.uniform([], seed, tf.float64))
    seeds = tf.stack([fold(number) for number in tf.range(500)])
    draws = np.stack([draw_one(seed) for seed in seeds])
    seeds = seeds.numpy()
    for half in (*seeds.T / 2**32, draws):
        assert len(set(half)) == 500
        assert scipy.stats.kstest(half, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(seeds.T)[0, 1]) < 5 / np.sqrt(500)


def test_integers_are_the_product_with_64_bits_in_every_shape():
    seed = (1, 2)
    limit = 2**31 - 1
    high, low = sampling.bits([2, 100], seed).numpy().astype(object)
    expected = [(a * 2**32 + b) * limit >> 64 for a, b in zip(high, low, strict=True)]
    assert sampling.uniform_integers([100], seed, limit).numpy().tolist() == expected
    line = sampling.bits([24], (1, 2)).numpy()
    assert_array_equal(sampling.bits([2, 3, 4], (1, 2)).numpy().ravel(), line)
    assert sampling.bits([], (1, 2)).numpy() == line[0]
    assert sampling.bits([3, 0], (1, 2)).shape == (3, 0)
    assert len(set(sampling.bits([SIZE], (3, 1)).numpy())) == SIZE


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_gumbel_noise(dtype, jit_compile):
    noise = tf.function(ops.gumbel_noise, jit_compile=jit_compile)(
        [200_000], [1, 2], dtype
    ).numpy()
    assert np.isfinite(noise).all() and noise.dtype == dtype.as_numpy_dtype
    assert scipy.stats.kstest(noise, "gumbel_r").pvalue > 1e-4
    for half in (tf.float16, tf.bfloat16):
        noise = ops.gumbel_noise([100_000], [1, 2], half)
        assert noise.dtype == half and bool(tf.reduce_all(tf.math.is_finite(noise)))


ELIGIBLE = np.random.default_rng(0).random((6, 40)) < 0.7
DRAWN = {
    "uniform": lambda seed: ops.uniform([3, 5], ops.fold_in(seed, 9), tf.float32),
    "items": lambda seed: ops.sample_items(seed, ELIGIBLE, 9),
    "few": lambda seed: ops.sample_distinct(40, 5, seed, batch=3),
    "most": lambda seed: ops.sample_distinct(40, 30, seed, batch=3),
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_seed_alone_decides(name, jit_compile):
    graph = tf.function(DRAWN[name], jit_compile=jit_compile)
    for seed in ([7, 8], [7, 2**60]):
        seed = tf.constant(seed, tf.int64)
        assert_array_equal(graph(seed), DRAWN[name](seed))
    expected = np.sort(DRAWN[name]([7, 8]), axis=1)
    assert (np.sort(DRAWN[name]([7, 9]), axis=1) != expected).any()
    assert (expected[0] != expected[1]).any()


def pvalue(draws, of):
    """Of the null hypothesis that all tuples are equally frequent; each occurs."""
    counts = collections.Counter(map(tuple, np.asarray(draws).tolist()))
    assert set(counts) == set(of)
    return scipy.stats.chisquare([counts[one] for one in of]).pvalue


def test_all_subsets_of_items_are_equally_frequent():
    eligible = np.array([True, False, True, True, True, False, True])
    drawn = ops.sample_items((3, 4), np.tile(eligible, (DRAWS, 1)), 2).numpy()
    items = np.flatnonzero(eligible).tolist()
    assert pvalue(np.sort(drawn, axis=1), [*itertools.combinations(items, 2)]) > 1e-3
    # Order is random too.
    assert pvalue(drawn, [*itertools.permutations(items, 2)]) > 1e-3


@pytest.mark.parametrize("num_sampled", [1, 30, 400])
def test_no_item_twice_and_nothing_else(rng, num_sampled):
    eligible = rng.random((50, 500)) < 0.9
    drawn = ops.sample_items([5, 6], eligible, num_sampled).numpy()
    assert drawn.shape == (50, num_sampled)
    for row, ids in enumerate(drawn):
        assert len(set(ids)) == num_sampled
        assert eligible[row, ids].all()


def test_few_eligible_items_are_all_there():
    eligible = np.array([[True, False, True, False], [False] * 4, [True] * 4])
    drawn = np.sort(ops.sample_items([0, 0], eligible, 6).numpy(), axis=1)
    assert_array_equal(drawn, [[-1] * 4 + [0, 2], [-1] * 6, [-1, -1, 0, 1, 2, 3]])


@pytest.mark.parametrize("size", [1, 7, 20, 21, 40], ids=lambda size: f"{size}_of_40")
def test_no_class_twice(size):
    ids = ops.sample_distinct(40, size, [3, 4], batch=25).numpy()
    assert ids.shape == (25, size) and ids.min() >= 0 and ids.max() < 40
    assert all(len(set(row)) == size for row in ids)
    for batch in (np.int64(25), tf.constant(25, tf.int64)):  # Counts may be of 64 bits.
        wide = ops.sample_distinct(np.int64(40), np.int64(size), [3, 4], batch=batch)
        assert_array_equal(wide, ids)


@pytest.mark.parametrize("size", [3, 4], ids=["few", "most"])
def test_all_subsets_of_classes_are_equally_likely(size):
    """In one batch, and of one subset per seed, as in training."""
    subsets = list(itertools.combinations(range(7), size))
    ids = ops.sample_distinct(7, size, [5, 6], batch=DRAWS)
    assert pvalue(np.sort(ids, axis=1), subsets) > 1e-3
    draw = tf.function(lambda seed: ops.sample_distinct(7, size, seed)[0])
    ids = [draw(tf.constant([7, step])) for step in range(2_000)]
    assert pvalue(np.sort(ids, axis=1), subsets) > 1e-3


def test_class_0_stands_in_for_missing_draws(monkeypatch):
    monkeypatch.setattr(sampling, "_most_repeats", lambda num_classes, size: 0)
    ids = ops.sample_distinct(30, 10, [1, 2], batch=50).numpy()
    for row in ids:
        there = len(set(row) - {0})
        assert len(set(row[:there])) == there and not row[there + 1 :].any()
    assert (np.sort(ids, axis=1)[:, :2] == 0).all(axis=1).any()
