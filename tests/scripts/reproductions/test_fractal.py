"""Expansions: what is expected of them by counting, what each user depends on, their statistics."""

import numpy as np
import pytest
import scipy.sparse

from rank4class_tf import data
from scripts.reproductions import fractal
from tests.scripts.reproductions import movielens_files

USERS, ITEMS, ROWS, COLUMNS = 40, 60, 5, 7


@pytest.fixture(scope="module")
def ratings():
    """Few users have many items, and few items many users."""
    rng = np.random.default_rng(0)
    users = np.concatenate([[0], (USERS * rng.random(900) ** 2).astype(int), np.arange(USERS)])
    items = np.concatenate([[0], (ITEMS * rng.random(900) ** 2).astype(int), np.arange(USERS)])
    items[-1] = ITEMS - 1
    return data.UserItems.from_pairs([(users, items)])


@pytest.fixture(scope="module")
def expansion(ratings):
    return fractal.fractal_expansion(ratings, ROWS, COLUMNS)


def matrix(ratings):
    """Who rated what, in all three parts."""
    dense = np.zeros([ratings.num_users, ratings.num_items])
    for part in (ratings.train, ratings.validation, ratings.test):
        dense[part.value_rowids().numpy(), part.flat_values.numpy()] = 1
    return dense


def dense(expansion):
    lists = expansion.users(0, expansion.num_users)
    found = np.zeros([expansion.num_users, expansion.num_items])
    np.add.at(found, (lists.value_rowids().numpy(), lists.flat_values.numpy()), 1)
    return found


def test_probabilities_are_the_ratings_in_small(ratings, expansion):
    """By NumPy's own decomposition; algorithm 2 has the inverse root of a matrix."""
    left, values, right = np.linalg.svd(matrix(ratings))
    k = ROWS

    def orthonormal(vectors, number):
        shrunk = np.stack([part.mean(axis=0) for part in np.array_split(vectors, number)])
        root_values, root = np.linalg.eigh(shrunk.T @ shrunk)
        return shrunk @ root @ np.diag(root_values**-0.5) @ root.T

    small = orthonormal(left[:, :k], ROWS) @ np.diag(values[:k])
    small = np.abs(small @ orthonormal(right[:k].T, COLUMNS).T)
    expected = np.clip(small / small.max(), 0.01, 0.95)
    np.testing.assert_allclose(expansion.probabilities, expected, rtol=1e-6)


def test_each_pair_stays_with_the_probability_of_its_block(ratings, expansion):
    """Of many seeds; in no block is a pair that the ratings do not have."""
    whole = np.kron(np.ones([ROWS, COLUMNS]), matrix(ratings))
    by_seed = [dense(fractal.fractal_expansion(ratings, ROWS, COLUMNS, seed=s)) for s in range(60)]
    assert all(((found == 0) | (found == 1)).all() for found in by_seed)
    assert (np.sum(by_seed, axis=0)[whole == 0] == 0).all()
    expected = np.kron(expansion.probabilities, matrix(ratings))
    deviations = (np.mean(by_seed, axis=0) - expected)[whole > 0]
    errors = deviations / np.sqrt(expected * (1 - expected) / 60)[whole > 0]
    # Of independent draws the squares have the mean 1, and no mean of errors is far from 0.
    assert abs(np.mean(errors**2) - 1) < 5 * np.sqrt(2 / len(errors))
    blocks = errors.mean() * np.sqrt(len(errors))
    assert abs(blocks) < 4
    total = np.mean([found.sum() for found in by_seed])
    assert total == pytest.approx(expansion.expected_pairs, rel=0.01)


def test_a_user_is_the_same_alone(expansion):
    whole = expansion.users(0, expansion.num_users).to_list()
    assert expansion.users(67, 68).to_list() == whole[67:68]
    assert expansion.users(30, 130).to_list() == whole[30:130]
    assert expansion.users(9, 9).to_list() == []
    assert all(items == sorted(set(items)) for items in whole)


def test_the_seed_decides(ratings, expansion):
    again, other = (
        fractal.fractal_expansion(ratings, ROWS, COLUMNS, seed=s) for s in (0, 2**32 - 1)
    )
    np.testing.assert_array_equal(dense(again), dense(expansion))
    assert (dense(other) != dense(expansion)).any()


def test_the_split_of_the_ratings_is_nothing():
    pairs = np.random.default_rng(1).integers(0, 30, [2, 200])
    one, other = (
        dense(fractal.fractal_expansion(data.UserItems.from_pairs([pairs], seed), 3, 4))
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(one, other)


def test_batches_are_pairs_that_user_items_takes(expansion):
    users = data.UserItems.from_pairs(expansion.batches(users_per_batch=33))
    found = np.zeros([expansion.num_users, expansion.num_items])
    found[np.ix_(users.user_ids, users.item_ids)] = matrix(users)
    np.testing.assert_array_equal(found, dense(expansion))


@pytest.mark.parametrize("num_pairs", [1000, 5000, 15_000])
def test_number_of_pairs(ratings, num_pairs):
    large = fractal.fractal_expansion(ratings, ROWS, COLUMNS, num_pairs)
    assert large.expected_pairs == pytest.approx(num_pairs, rel=1e-6)


def test_prints_the_statistics(tmp_path, capsys):
    path = movielens_files.write(tmp_path / "ml-tiny.zip")
    found = fractal.main([f"--ratings={path}", "--rows=4", "--columns=5", "--num-pairs=1500"])
    assert "| blocks shuffled |" in capsys.readouterr().out
    # 24 users with 9 films each.
    assert (found["ratings"]["users"], found["ratings"]["pairs"]) == ("24", "216")
    assert found["ratings"]["Gini, users"] == "0.000"
    # Shuffling moves pairs and loses none.
    assert found["blocks shuffled"]["pairs"] == found["expansion"]["pairs"]
    assert int(found["expansion"]["pairs"].replace(",", "")) == pytest.approx(1500, rel=0.1)


def test_gini():
    assert fractal.gini(np.array([3.0, 3.0, 0.0, 3.0])) == pytest.approx(0)
    # The mean difference of two counts, |1 - 3| in half of the pairs, over twice the mean.
    assert fractal.gini(np.array([1.0, 3.0])) == pytest.approx((2 / 2) / (2 * 2))


def test_singular_values_are_over_the_first():
    values = np.diag(np.arange(20.0, 8, -1))
    found = fractal.statistics(scipy.sparse.csr_matrix(values))
    assert found["singular values 2, 3, 5, 10"] == "0.95, 0.90, 0.80, 0.55"
