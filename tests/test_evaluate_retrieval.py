"""Retrieval both ways on a similarity matrix."""

import numpy as np
import pytest

from rank4class_tf import evaluation


def ranks_of_best(similarity, matches):
    """The rank of the best match of each row without ties."""
    return [1 + (s > s[m].max()).sum() for s, m in zip(similarity, matches, strict=True) if m.any()]


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_both_ways(rng, batch_size):
    similarity = rng.normal(size=(40, 40)) + 2 * np.eye(40)
    square = evaluation.evaluate_retrieval(similarity, batch_size=batch_size)
    some = rng.random((40, 30)) < 0.1
    several = evaluation.evaluate_retrieval(similarity[:, :30], some, [2], batch_size=batch_size)
    for figures, matrix, matches, cutoffs in (
        (square, similarity, np.eye(40, dtype=bool), (1, 5, 10)),
        (several, similarity[:, :30], some, (2,)),
    ):
        for side, ranks in (
            ("rows", ranks_of_best(matrix, matches)),
            ("columns", ranks_of_best(matrix.T, matches.T)),
        ):
            assert figures[side]["median_rank"] == np.median(ranks)
            for k in cutoffs:
                expected = np.mean(np.array(ranks) <= k)
                np.testing.assert_allclose(figures[side][f"hit_rate_at_{k}"], expected, rtol=1e-6)


def test_shapes_are_checked():
    for bad in (np.zeros([2, 3]), np.zeros([3])):
        with pytest.raises(ValueError, match="`similarity` and `matches` must have one shape"):
            evaluation.evaluate_retrieval(bad)


def test_one_cutoff_and_no_match(rng):
    matrix = rng.normal(size=(5, 5))
    expected = evaluation.evaluate_retrieval(matrix, k=[2])
    for k in (2, np.int64(2)):
        assert evaluation.evaluate_retrieval(matrix, k=k) == expected
    with pytest.raises(ValueError, match="`matches` must hold a match"):
        evaluation.evaluate_retrieval(matrix, np.zeros([5, 5], bool))


def test_matches_are_booleans():
    with pytest.raises(ValueError, match="`matches` must hold booleans"):
        evaluation.evaluate_retrieval(np.eye(3), [[-1, 0, 1]] * 3)
