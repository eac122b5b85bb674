"""Top-k and ranks by blocks against NumPy's sort of all scores."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf._tf.search import top_k_by_blocks
from rank4class_tf.ops.blocks import count_others_by_blocks


@pytest.fixture(params=["distinct", "ties"])
def scores(request, rng):
    if request.param == "distinct":
        return rng.normal(size=(4, 103)).astype(np.float32)
    return rng.integers(0, 6, size=(4, 103)).astype(np.float32)


def scorer(scores):
    return lambda ids: tf.gather(scores, ids, axis=1)


def above_and_tied(score, num_classes, class_ids, own, *args):
    """Counts of the classes above and of those tied, 0 for padding and for a NaN score."""
    class_ids = tf.cast(class_ids, tf.int32)
    own = tf.convert_to_tensor(own)
    above, others = count_others_by_blocks(score, num_classes, class_ids, own, *args)
    ranked = tf.cast((class_ids >= 0) & ~tf.math.is_nan(own), tf.int32)
    return above * ranked, (others + 1) * ranked


@pytest.mark.parametrize("order", ["random", "rising", "falling"])
@pytest.mark.parametrize("distinct", [False, True])
def test_top_k_of_many_blocks(distinct, order, rng):
    # Blocks wide enough for groups; rising scores are all new in each block.
    scores = rng.normal(size=(5, 4000)).astype(np.float32)
    scores = scores if distinct else np.round(scores, 1)
    if order != "random":
        scores = np.sort(scores, axis=1)[:, :: 1 if order == "rising" else -1]
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :20]
    in_graph = tf.function(top_k_by_blocks)
    in_xla = tf.function(top_k_by_blocks, jit_compile=True)
    for search, k in [(top_k_by_blocks, 20), (in_graph, tf.constant(20)), (in_xla, 20)]:
        values, ids = search(scorer(scores), 4000, k, 512)
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_array_equal(values, np.take_along_axis(scores, expected, axis=1))


def test_top_k_where_few_are_left(rng):
    scores = np.full([3, 400], -np.inf)
    scores[:, ::90] = rng.normal(size=[3, 5])
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :9]
    for block_size in (64, 400, 1000):
        _, ids = top_k_by_blocks(scorer(scores), 400, 9, block_size)
        np.testing.assert_array_equal(ids, expected)


@pytest.mark.parametrize("num_classes", [60, 400])
def test_top_k_for_nobody(num_classes):
    search = tf.function(lambda: top_k_by_blocks(scorer(scores), num_classes, 9, 64))
    scores = np.zeros([0, num_classes], np.float32)
    assert [tuple(x.shape) for x in search()] == [(0, 9)] * 2


@pytest.mark.parametrize("block_size", [10, 103, 1000])
def test_ranks(scores, block_size):
    class_ids = np.array([[0, 102], [9, 10], [50, -1], [-1, -1]])
    own = np.take_along_axis(scores, np.maximum(class_ids, 0), axis=1)
    own[1, 1] = np.nan
    above, tied = above_and_tied(scorer(scores), 103, class_ids, own, block_size)
    there = (class_ids >= 0) & ~np.isnan(own)
    expected = (scores[:, None] > own[:, :, None]).sum(-1) * there
    np.testing.assert_array_equal(above, expected)
    np.testing.assert_array_equal(tied, (scores[:, None] == own[:, :, None]).sum(-1) * there)


def test_own_score_counts_once_whatever_its_rounding(scores):
    own = scores[:, 20:21]
    for noise in (-1e-6, 1e-6):
        noisy = scores.copy()
        noisy[:, 20] += noise
        for jit_compile in (False, True):
            count = tf.function(above_and_tied, jit_compile=jit_compile)
            above, tied = count(scorer(noisy), 103, np.full([4, 1], 20), own, 8)
            np.testing.assert_array_equal(above[:, 0], (scores > own).sum(-1))
            np.testing.assert_array_equal(tied[:, 0], (scores == own).sum(-1))


def test_scores_within_the_tolerance_tie():
    scores = np.array([[1.0, 1.25, 1.5, 1.75, 2.0, np.nan, -np.inf, np.inf]], np.float32)
    ids, own = [[0, 2, 4, 5, -1]], [[1.0, 1.5, 2.0, np.nan, 1.0]]
    for tolerance, tied in ((0.0, [1, 1, 1, 0, 0]), (0.25, [2, 3, 2, 0, 0]), (1, [5, 5, 5, 0, 0])):
        for block_size in (1, 3, 8):
            above, found = above_and_tied(
                scorer(scores), 8, ids, tf.constant(own), block_size, tolerance
            )
            np.testing.assert_array_equal(found, [tied])
            # Those above, the infinite one among them, without those tied.
            expected = {0.0: [5, 3, 1, 0, 0], 0.25: [4, 2, 1, 0, 0], 1: [1, 1, 1, 0, 0]}
            np.testing.assert_array_equal(above, [expected[tolerance]])


@pytest.mark.parametrize("tolerance", [0.0, 1e30, np.inf, np.nan])
def test_infinite_scores_tie_with_their_equals_alone(tolerance):
    """Whatever a bound that overflows is: it is finite where a score is finite and not excluded."""
    inf, highest = np.inf, np.finfo(np.float32).max
    scores = np.array([[inf, inf, highest, 0.0, -highest, -inf, -inf, np.nan]], np.float32)
    # Others tie within a bound that is finite.
    for own, above, tied in ((0, 0, 2), (5, 5, 2), *([(2, 2, 1), (4, 4, 1)] * (tolerance < inf))):
        of_own = tf.constant(scores[:, own : own + 1])
        found = above_and_tied(scorer(scores), 8, [[own]], of_own, 3, tolerance)
        assert [int(x[0, 0]) for x in found] == [above, tied]
