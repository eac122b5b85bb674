"""What computes the figures of the reproductions, against definitions in NumPy and SciPy."""

import itertools

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from sklearn.metrics import average_precision_score

from rank4class_tf import data, layers
from scripts.reproductions import learning_to_rank, rankmax, retrieval, snm, sodeep, train_sorter
from tests.scripts.reproductions import movielens_files
from tests.scripts.reproductions.test_short_forms import users


def test_kinds_of_lists(rng):
    lists = sodeep.draw_lists(rng, 5000, 40)

    def share(condition):
        return pytest.approx(np.mean(condition), abs=0.02)

    assert share(np.abs(lists - np.linspace(-1, 1, 40)).max(axis=1) < 1e-6) == 0.1
    for x, expected in ((lists, 0.2), (np.sort(lists, axis=1), 0.3)):
        assert share(np.ptp(np.diff(x, axis=1), axis=1) < 1e-5) == expected  # Evenly spaced.
    # One of ten is normal; of two, only the items behind the first s are.
    assert share((np.abs(lists[:, :1]) > 1)[:, 0]) == 0.1 * 2 * scipy.stats.norm.sf(1)
    assert share(np.abs(lists[:, -1]) > 1) == 0.3 * 2 * scipy.stats.norm.sf(1)


def test_exact_ranks_against_scipy(rng):
    scores = np.concatenate([rng.standard_normal((5, 30)), rng.integers(6, size=(5, 30))])
    expected = scipy.stats.rankdata(-scores, axis=1)
    np.testing.assert_array_equal(sodeep.exact_ranks(scores), expected)


def test_measures_of_sorters():
    """Of the handcrafted sorter the paper has 0.0350, this mixture in the mean 0.0344."""
    figures = sodeep.measure(layers.SigmoidSorter(0.1), count=2000)
    assert figures["l1_100"] == pytest.approx(0.0344, abs=0.003)
    assert figures["median_slope"] == pytest.approx(-0.47, abs=0.02)
    # Each rank falls by twice the own score, and rises by any other.
    slopes = sodeep.own_slopes(lambda s: tf.reduce_sum(s, 1, keepdims=True) - 3 * s, 20, 10)
    np.testing.assert_allclose(slopes, np.full(20, -0.2), atol=1e-6)
    expected = {"vanishing_slopes": 0.5, "wrong_slopes": 0.25, "median_slope": -0.02}
    assert sodeep.slope_shares(np.array([-0.5, -0.04, 0.0, 0.1])) == expected


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


def test_moved_items_of_a_straight_list(rng):
    """Where ranks fall evenly with the scores, the wanted number is 1."""
    scores = np.stack([np.arange(20) * 0.1, rng.permutation(20) * 3.0]).astype(np.float32)
    after, multipliers = train_sorter.moved(rng, scores)
    found = (-(after - scores) / np.array([[0.1], [3.0]]) * multipliers)[multipliers != 0]
    assert found.size and (multipliers[after == scores] == 0).all()
    np.testing.assert_allclose(found, 1, atol=1e-4)
    after, multipliers = train_sorter.moved(rng, np.ones((2, 20), np.float32))
    assert (after == 1).all() and (multipliers == 0).all()


def wanted(name, scores):
    """The loss of one positive, the first score, and five sampled negatives, in NumPy."""
    negatives = np.sort(scores[1:])[::-1]
    if name == "negative sampling":
        return 1 - scores[0] + np.mean(1 + negatives)
    if name == "word2vec":
        return np.logaddexp(0, -scores[0]) + 15 * np.mean(np.logaddexp(0, negatives))
    if name == "Top-2:pairwise:logistic:10":
        return np.mean(np.logaddexp(0, -10 * (scores[0] - negatives[:2])))
    if name == "Top-1:hinge:4":
        return max(1 - 4 * scores[0], 0) + max(1 + 4 * negatives[0], 0)
    return np.log(np.sum(np.exp(20 * (scores - scores[0]))))


@pytest.mark.parametrize(
    "method",
    ["negative sampling", "word2vec", "Top-2:pairwise:logistic:10", "Top-1:hinge:4"]
    + ["full softmax:20"],
)
def test_losses_of_methods(method, rng):
    scores = rng.uniform(-1, 1, size=(3, 6))
    loss = float(snm.make_loss(snm.method_name(method), num_sampled=5)(np.zeros(3, int), scores))
    if "logistic" in method or method == "word2vec":
        loss *= np.log(2)  # The package's logistic is in bits.
    assert loss == pytest.approx(np.mean([wanted(method, row) for row in scores]), rel=1e-5)


@pytest.mark.parametrize(
    ("rates", "best", "expected"),
    [([5, 50], 50, [500]), ([0.3, 1, 3], 0.3, [0.1]), ([3, 10, 30], 10, []), ([7], 7, [])],
)
def test_steps_beyond_a_grid(rates, best, expected):
    assert snm.beyond(rates, best) == expected


def test_files_of_wordnet(tmp_path):
    """Twenty nouns below three levels and one class, and verbs in a circle, in the real format."""
    nouns = {1: ([], "all"), 2: ([1], "thing"), 3: ([2], "object"), 4: ([3], "Class")}
    nouns |= {n: ([4], "Blue sky; blue" if n % 2 else "the green sky") for n in range(10, 30)}
    verbs = {1: ([], "to move"), 2: ([1], "to go"), 3: ([4], "sky blue"), 4: ([3], "sky green")}
    for name, synsets in (("noun", nouns), ("verb", verbs)):
        lines = ["  1 The licence."]
        for n, (parents, gloss) in synsets.items():
            pointers = "".join(f"@ {parent:08d} {name[0]} 0000 " for parent in parents)
            fields = f"{n:08d} 03 {name[0]} 02 w 0 v 0 {len(parents):03d} {pointers}"
            lines.append(f"{fields}| {gloss}")
        (tmp_path / f"data.{name}").write_text("\n".join(lines))
    snm.write_wordnet(tmp_path, tmp_path / "out")
    glosses = [nouns[n][1].lower() for n in range(10, 30)] + ["to go", "sky blue", "sky green"]
    bags = [gloss.replace(";", "").split() for gloss in glosses]
    order = np.random.default_rng(0).permutation(23)
    train = [bags[i] for i in order[:18]]
    count = {word: sum(word in bag for bag in train) for bag in bags for word in bag}
    vocabulary = sorted(word for word in count if 2 <= count[word] < 18)
    batch = next(iter(data.extreme_classification(tmp_path / "out" / "train.txt", 18)))
    features, class_ids = tf.sparse.to_dense(batch[0]).numpy(), batch[1].numpy()
    with_words = [i for i in order[:18] if set(bags[i]) & set(vocabulary)]
    assert features.shape == (len(with_words), len(vocabulary))
    # The classes are n4, v1, v3 and v4, of which v3 and v4 are above each other.
    classes = {20: 1, 21: 3, 22: 2}
    assert class_ids[:, 0].tolist() == [classes.get(i, 0) for i in with_words]
    for row, i in zip(features, with_words, strict=True):
        of_word = [bags[i].count(word) for word in vocabulary]
        weights = [
            (1 + np.log(n)) * np.log(18 / count[word]) if n else 0
            for n, word in zip(of_word, vocabulary, strict=True)
        ]
        np.testing.assert_allclose(row, weights / np.linalg.norm(weights), atol=1e-5)


def test_lists_to_rank_are_as_the_page_says(rng):
    part = learning_to_rank.make_lists(learning_to_rank.Situation(1, 0.5), 3000, rng)
    for labels in (part.grades, part.labels):
        shares = [np.mean(labels[labels >= 0] == grade) for grade in range(5)]
        np.testing.assert_allclose(shares, [0.515, 0.325, 0.134, 0.019, 0.007], atol=0.01)
    assert (part.grades[part.best > 0] == part.grades.max(axis=1)).all()
    assert not part.features[part.grades < 0].any()
    part = learning_to_rank.make_lists(learning_to_rank.Situation(1, 0.5, True), 50, rng)
    assert ((part.labels > 0).sum(axis=1) == 1).all()


def test_films_that_rankmax_reads_are_not_ranked():
    split = users("latest-small", None, 3)

    def training_items_first(items):
        scores = np.zeros([int(items.nrows()), split.num_items], np.float32)
        for row, of_user in zip(scores, items.to_list(), strict=True):
            row[of_user] = 1
        return scores

    # With the training items out of the ranking, all others tie: chance among the 30 left.
    figures = rankmax.evaluate(training_items_first, split, "validation")
    lengths = split.validation.row_lengths().numpy()
    left = split.num_items - split.train.row_lengths().numpy()
    chance = np.mean((lengths / left)[lengths > 0])
    np.testing.assert_allclose(figures["accuracy"], chance, rtol=1e-6)


@pytest.fixture
def task(tmp_path):
    return retrieval.read(movielens_files.write(tmp_path / "tiny.zip"))


def test_films_and_what_is_held_out(task):
    films, user = task.films, task.users[5]
    assert films["id"][:3].tolist() == [3, 13, 23] and films["decade"][0] == 6
    # "the" and "night" stand in each title of its genre, the number of the film in one.
    assert len(set(films["words"][1, :2]) & set(films["words"][4, :2])) == 2
    assert films["words"][1, 2] == 1 and (films["genres"].sum(axis=1) == 1).all()
    learned = {film for u in task.users for film in u[:-2]}
    assert set(np.flatnonzero(films["number"])) == learned
    queries, rows = task.queries(1)
    assert rows[5] == user[-1] and task.queries(2)[1][5] == user[-2]
    assert queries["history"][5, :8].tolist() == (user[:-1][::-1] + 1).tolist()
    assert set(np.flatnonzero(task.seen(1)[5])) == set(user[:-1])
    found = [
        (*history, row)
        for queries, film in task.pairs(12, 0)
        for history, row in zip(queries["history"].numpy(), film["row"].numpy(), strict=True)
    ]
    ends = [(u, end) for u in task.users for end in range(1, 7)]
    assert sorted(found) == sorted((*retrieval.history(u[:end]), u[end]) for u, end in ends)
    assert retrieval.history(np.arange(100, 170)).tolist() == list(range(170, 120, -1))


def test_figures_of_retrieval_are_those_of_ranks(task, rng):
    scores = rng.normal(size=(24, 60))
    found, ranks = retrieval.figures(scores, task, held_out=1), []
    for user, row in zip(task.users, scores, strict=True):
        left = np.setdiff1d(np.arange(60), user[:-1])
        ranks.append(1 + np.sum(row[left] > row[user[-1]]))
    ranks = np.array(ranks)
    assert found["recall_at_10"] == pytest.approx(np.mean(ranks <= 10))
    assert found["mrr"] == pytest.approx(np.mean(1 / ranks))
    gains = np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0)
    assert found["ndcg_at_10"] == pytest.approx(gains.mean())


def test_ease_is_its_closed_form(task):
    learned, histories = task.seen(2).astype(float), task.seen(1)
    inverse = np.linalg.inv(learned.T @ learned + 7 * np.eye(60))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    scores = retrieval.ease(learned, 7)(histories)
    np.testing.assert_allclose(scores, histories @ weights, rtol=1e-6, atol=1e-9)
