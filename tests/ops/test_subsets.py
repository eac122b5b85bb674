"""Random subsets: what they hold and how they are distributed."""

import collections
import itertools

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from rank4class_tf import ops
from rank4class_tf.ops import sampling


@pytest.mark.parametrize("size", [1, 7, 20, 21, 40], ids=lambda size: f"{size}_of_40")
@pytest.mark.parametrize("jit_compile", [None, True], ids=["graph", "xla"])
def test_no_class_twice(size, jit_compile):
    draw = tf.function(
        lambda seed: ops.sample_distinct(40, size, seed, batch=25), jit_compile=jit_compile
    )
    ids = draw(tf.constant([3, 4])).numpy()
    assert ids.shape == (25, size) and ids.min() >= 0 and ids.max() < 40
    assert all(len(set(row)) == size for row in ids)
    np.testing.assert_array_equal(draw(tf.constant([3, 4])), ids)
    if size < 40:
        assert (np.sort(draw(tf.constant([3, 5])), axis=1) != np.sort(ids, axis=1)).any()


def test_xla_draws_the_same():
    draw = ops.sample_distinct
    for size in (5, 30):
        compiled = tf.function(lambda s=size: draw(40, s, [1, 2], batch=3), jit_compile=True)
        np.testing.assert_array_equal(compiled(), draw(40, size, [1, 2], batch=3))


@pytest.mark.parametrize(("num_classes", "size"), [(7, 3), (7, 4)], ids=["few", "most"])
def test_all_subsets_are_equally_likely(num_classes, size):
    draws = 20_000
    ids = np.sort(ops.sample_distinct(num_classes, size, [5, 6], batch=draws), axis=1)
    counts = collections.Counter(map(tuple, ids.tolist()))
    sampling = list(itertools.combinations(range(num_classes), size))
    assert set(counts) == set(sampling)
    assert scipy.stats.chisquare([counts[s] for s in sampling]).pvalue > 1e-3


@pytest.mark.parametrize(("num_classes", "size"), [(7, 3), (7, 4)], ids=["few", "most"])
def test_seeds_are_independent(num_classes, size):
    """One subset per seed, as in training: all pairs of classes are equally likely."""
    draw = tf.function(lambda seed: ops.sample_distinct(num_classes, size, seed))
    counts = collections.Counter()
    for step in range(2_000):
        counts[tuple(sorted(draw(tf.constant([7, step])).numpy()[0].tolist()))] += 1
    sampling = list(itertools.combinations(range(num_classes), size))
    assert scipy.stats.chisquare([counts[s] for s in sampling]).pvalue > 1e-3


def test_millions_of_classes():
    ids = ops.sample_distinct(2_812_281, 32_768, [1, 1])[0].numpy()
    assert len(np.unique(ids)) == 32_768
    assert scipy.stats.kstest(ids / 2_812_281, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("size", [2, 30], ids=["few", "most"])
def test_counts_may_be_of_64_bits(size):
    expected = ops.sample_distinct(40, size, [1, 2], batch=3)
    for batch in (np.int64(3), tf.constant(3, tf.int64)):
        ids = ops.sample_distinct(np.int64(40), np.int64(size), [1, 2], batch=batch)
        np.testing.assert_array_equal(ids, expected)


def log2_probability_of_too_few(num_classes, size, draws):
    """Of fewer than `size` different ones among so many draws, by the number there at each draw."""
    there = np.arange(size)
    repeat, new = there / num_classes, 1 - there / num_classes
    probability, exponent = np.eye(1, size)[0], 0
    for _ in range(draws):
        probability = probability * repeat + np.append(0, (probability * new)[:-1])
        exponent += np.log2(probability.sum())  # Kept apart, so that nothing underflows.
        probability /= probability.sum()
    return exponent


@pytest.mark.parametrize(
    ("num_classes", "size"), [(5, 2), (40, 19), (1000, 10), (2000, 999), (13_330, 1024)]
)
def test_draws_suffice(num_classes, size):
    draws = size + sampling._most_repeats(num_classes, size)
    assert log2_probability_of_too_few(num_classes, size, draws) < -64
    # The bound wastes no more than a tenth of the draws, or few.
    enough = draws - max(10, draws // 10)
    assert enough < size or log2_probability_of_too_few(num_classes, size, enough) > -64


def test_class_0_stands_in_for_missing_draws(monkeypatch):
    monkeypatch.setattr(sampling, "_most_repeats", lambda num_classes, size: 0)
    ids = ops.sample_distinct(30, 10, [1, 2], batch=50).numpy()
    for row in ids:
        there = len(set(row) - {0})
        assert len(set(row[:there])) == there and not row[there + 1 :].any()
    assert (np.sort(ids, axis=1)[:, :2] == 0).all(axis=1).any()


def test_bad_size_raises():
    with pytest.raises(ValueError, match=r"`size` must be in \[1, 5\]. Received: size=6"):
        ops.sample_distinct(5, 6, [1, 2])
