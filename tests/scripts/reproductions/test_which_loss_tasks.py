"""What the tasks give to learn from."""

import os

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import data
from scripts.reproductions import which_loss_tasks, wordnet


@pytest.fixture
def users(rng, monkeypatch):
    """Six users with most of thirty films, of which the last was rated once."""
    rated = rng.random((6, 30)) < 0.9
    rated[:, 29] = np.arange(6) == 0
    found = data.UserItems.from_pairs([np.nonzero(rated)])
    monkeypatch.setattr(data, "movielens", lambda *args, **kwargs: found)
    monkeypatch.setattr(which_loss_tasks, "FEWEST_RATINGS", 2)
    return found


def rows(batches):
    features, relevance = zip(*batches.as_numpy_iterator(), strict=True)
    return np.concatenate(features), np.concatenate(relevance)


def test_films(users):
    problem = which_loss_tasks.movielens(None)
    splits = problem.load(4, 0)
    kept = [str(item) for item in users.item_ids if item != 29]
    assert list(splits.class_names) == kept
    train, test = rows(splits.train), rows(splits.test)
    for features, relevance in (train, rows(splits.validation), test):
        # What is read is masked, and nothing else.
        np.testing.assert_array_equal(features > 0, relevance < 0)
        np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-6)
        assert (relevance > 0).any(axis=1).all()
    # Each film of a user is a target once; the others are then read.
    targets = (train[1] > 0).sum()
    assert targets == sum(len(row) for row in users.train.to_list()) - (
        29 in users.train.flat_values.numpy()
    )
    assert ((train[1] > 0).sum(axis=1) <= which_loss_tasks.TARGETS).all()
    # Before the test stands all that was known until then.
    owned = [set(row) - {29} for row in tf.concat([users.train, users.validation], 1).to_list()]
    expected = [len(row) for row, last in zip(owned, users.test.to_list(), strict=True) if last]
    np.testing.assert_array_equal((test[0] > 0).sum(axis=1), expected)


def test_orders_of_films_follow_from_the_seed(users):
    problem = which_loss_tasks.movielens(None)
    one, same, other = (problem.load(4, seed) for seed in (0, 0, 1))
    first, second = rows(one.train), rows(one.train)
    np.testing.assert_array_equal(first[1], rows(same.train)[1])
    assert not np.array_equal(first[1], second[1])
    assert not np.array_equal(first[1], rows(other.train)[1])


def test_concepts_with_many_glosses(monkeypatch):
    class_ids = [[0, 2], [2, -1], [1, 2], [0, -1], [2, 0], [1, -1]]
    features = tf.sparse.from_dense(np.eye(6, dtype=np.float32))
    batches = tf.data.Dataset.from_tensor_slices((features, class_ids)).batch(3)
    splits = data.Splits(batches, batches, batches, ("a", "b", "c"), tuple("uvwxyz"))
    monkeypatch.setattr(wordnet, "wordnet", lambda path, batch_size: splits)
    monkeypatch.setattr(which_loss_tasks, "FEWEST_GLOSSES", 3)
    problem = which_loss_tasks.wordnet("folder/../other")
    assert problem.description["wordnet_dir"] == os.path.realpath("other")
    found = problem.load(3, 0)
    assert found.class_names == ("a", "c")
    labels = np.concatenate([labels for _, labels in found.test])
    np.testing.assert_array_equal(labels, [[1, 1], [0, 1], [0, 1], [1, 0], [1, 1], [0, 0]])
