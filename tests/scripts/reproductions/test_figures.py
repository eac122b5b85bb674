"""What computes the figures of the reproductions, against definitions in NumPy and SciPy."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import average_precision_score

from rank4class_tf import layers
from scripts.reproductions import retrieval, snm, sodeep
from tests.scripts.reproductions import movielens_files


def test_measures_of_sorters():
    """Of the handcrafted sorter the paper has 0.0350, this mixture in the mean 0.0344."""
    figures = sodeep.measure(layers.SigmoidSorter(0.1), count=2000)
    assert figures["l1_100"] == pytest.approx(0.0344, abs=0.003)
    # Each rank falls by twice the own score, and rises by any other.
    slopes = sodeep.own_slopes(lambda s: tf.reduce_sum(s, 1, keepdims=True) - 3 * s, 20, 10)
    np.testing.assert_allclose(slopes, np.full(20, -0.2), atol=1e-6)
    shares = sodeep.slope_shares(np.array([-0.5, -0.04, 0.0, 0.1]))
    assert list(shares.values()) == [0.5, 0.25, -0.02]  # Vanishing, wrong, and the median.


@pytest.mark.parametrize("scale", [0.1, 2])
def test_hinge_ap_is_the_maximum_over_orders(rng, scale):
    labels, scores = np.array([1, 0, 1, 0, 0, 1]), scale * rng.normal(size=6)
    positives, negatives = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)

    def agreement(order):
        """The mean over pairs of +-(s_i - s_j), + where the order has the positive above."""
        sign = np.where(order[positives][:, None] > order[negatives], 1, -1)
        return np.mean(sign * (scores[positives][:, None] - scores[negatives]))

    orders = map(np.array, itertools.permutations(range(6)))
    found = (1 - average_precision_score(labels, order) + agreement(order) for order in orders)
    loss = sodeep.hinge_ap(tf.constant(labels[:, None]), tf.constant(scores[:, None]))
    assert float(loss) == pytest.approx(max(found) - agreement(labels), rel=1e-9)


# Losses of a positive and its sampled negatives, from the highest on; the logistic is in bits.
METHODS = {
    "negative sampling": lambda s, n: 1 - s + np.mean(1 + n),
    "word2vec": lambda s, n: np.log2(1 + np.exp(-s)) + 15 * np.mean(np.log2(1 + np.exp(n))),
    "Top-1:hinge:4": lambda s, n: max(1 - 4 * s, 0) + max(1 + 4 * n[0], 0),
    "Top-2:pairwise:logistic:10": lambda s, n: np.mean(np.log2(1 + np.exp(10 * (n[:2] - s)))),
    "full softmax:20": lambda s, n: np.log(1 + np.sum(np.exp(20 * (n - s)))),
}


@pytest.mark.parametrize("method", METHODS)
def test_losses_of_methods(method, rng):
    scores = rng.uniform(-1, 1, size=(3, 6))
    loss = snm.make_loss(snm.method_name(method), num_sampled=5)(np.zeros(3, int), scores)
    expected = [METHODS[method](row[0], np.sort(row[1:])[::-1]) for row in scores]
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.fixture
def task(tmp_path):
    return retrieval.read(movielens_files.write(tmp_path / "tiny.zip"))


def test_films_and_what_is_held_out(task):
    films, user = task.films, task.users[5]
    assert films["id"][:3].tolist() == [3, 13, 23] and films["decade"][0] == 6
    # "the" and "night" stand in each title of its genre, the number of the film in one.
    assert set(films["words"][1, :2]) == set(films["words"][4, :2]) and films["words"][1, 2] == 1
    learned = {film for u in task.users for film in u[:-2]}
    assert set(np.flatnonzero(films["number"])) == learned
    assert (task.queries(2)[1][5], task.queries(1)[1][5]) == (user[-2], user[-1])
    assert task.queries(1)[0]["history"][5, :8].tolist() == (user[:-1][::-1] + 1).tolist()
    found = [
        (*history, row)
        for queries, film in task.pairs(12, 0)
        for history, row in zip(queries["history"].numpy(), film["row"].numpy(), strict=True)
    ]
    ends = [(u, end) for u in task.users for end in range(1, 7)]
    assert sorted(found) == sorted((*retrieval.history(u[:end]), u[end]) for u, end in ends)


def test_figures_of_retrieval_are_those_of_ranks(task, rng):
    scores = rng.normal(size=(24, 60))
    found, left = retrieval.figures(scores, task, held_out=1), 1 - task.seen(1)
    own = scores[np.arange(24), [user[-1] for user in task.users]]
    ranks = 1 + np.sum(left * (scores > own[:, None]), axis=1)
    gains = np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0)
    for name, of in (("recall_at_10", ranks <= 10), ("mrr", 1 / ranks), ("ndcg_at_10", gains)):
        assert found[name] == pytest.approx(of.mean())


def test_ease_is_its_closed_form(task):
    learned, histories = task.seen(2).astype(float), task.seen(1)
    inverse = np.linalg.inv(learned.T @ learned + 7 * np.eye(60))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    scores = retrieval.ease(learned, 7)(histories)
    np.testing.assert_allclose(scores, histories @ weights, rtol=1e-6, atol=1e-9)
