"""The example reads, holds out by time, learns, and finds films that training has no rating of."""

import numpy as np
import pytest
import tensorflow as tf

from examples import movielens_retrieval as example
from tests.examples import movielens_files


@pytest.fixture
def task(tmp_path):
    return example.Task(*example.read(movielens_files.write(tmp_path / "tiny.zip")))


def test_reads_films(task):
    films = task.films
    assert films.ids[:3].tolist() == [3, 13, 23] and films.titles[1] == "The night 1 (1951)"
    assert films.genres.shape == (60, 3) and (films.genres.sum(axis=1) == 1).all()
    assert films.decades[0] == 6 and films.num_decades == films.decades.max() + 1
    assert films.words.max() == films.num_words - 1
    # "the" and "night" stand in each title of its genre, the number of the film in one.
    assert len(set(films.words[1, :2]) & set(films.words[4, :2])) == 2 and films.words[1, 2] == 1


def test_decades_before_1900_are_known():
    years = (1888, 1895, 1903, 1911)
    movies = [[str(year), f"A film ({year})", "Drama"] for year in years]
    films = example._films([*movies, ["5", "Another", "Drama"]])
    assert films.decades.tolist() == [1, 1, 1, 2, 0]
    assert films.num_decades == 3


def test_holds_out_the_last_films(task, tmp_path):
    assert len(task.users) == 24 and all(len(user) == 9 for user in task.users)
    queries, rows = task.queries(held_out=1)
    user = task.users[5]
    assert rows[5] == user[-1]
    assert queries["history"][5, :8].tolist() == (user[:-1][::-1] + 1).tolist()
    assert not queries["history"][5, 8:].any()
    assert set(queries["seen"][5]) == set(task.films.ids[user[:-1]])
    _, rows = task.queries(held_out=2)
    assert rows[5] == user[-2]
    held_out = {u[-1] for u in task.users} | {u[-2] for u in task.users}
    learned = {film for u in task.users for film in u[:-2]}
    assert set(np.flatnonzero(task.rated)) == learned and held_out - learned <= set(range(60))


def test_pairs_are_what_came_before(task):
    histories, rows = [], []
    for queries, films in task.pairs(batch_size=12, seed=0):
        histories.extend(queries["history"].numpy())
        rows.extend(np.searchsorted(task.films.ids, films["id"].numpy()))
        known = films["number"].numpy() > 0
        assert (films["number"].numpy()[known] == np.array(rows)[-12:][known] + 1).all()
    assert len(rows) == 24 * 6
    found = sorted((*h.tolist(), int(row)) for h, row in zip(histories, rows, strict=True))
    ends = [(user, end) for user in task.users for end in range(1, 7)]
    assert found == sorted((*example.history(u[:end]).tolist(), int(u[end])) for u, end in ends)


def test_only_the_last_of_a_long_history_count():
    rows = np.arange(100, 170)
    assert example.history(rows).tolist() == list(range(170, 120, -1))


@pytest.mark.slow
def test_learns_and_exports(tmp_path, capsys):
    path = movielens_files.write(tmp_path / "tiny.zip")
    options = ["--width", "8", "--batch-size", "24", "--epochs", "6", "--num-random", "10"]
    options += ["--zip", str(path), "--export", str(tmp_path / "saved")]
    example.main(options)
    lines = capsys.readouterr().out.splitlines()
    recall = next(line for line in lines if line.startswith("recall_at_10: "))
    # Ten of 60 at random are a sixth; a user likes one genre of three.
    assert float(recall.split(": ")[1]) > 1 / 6
    unrated = next(line for line in lines if "of which training has no rating" in line)
    word = unrated.split()[1]
    like = lines[lines.index(unrated) + 1 :][:5]
    assert sum(word in line for line in like) >= 4
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    task = example.Task(*example.read(path))
    queries, _ = task.queries(held_out=1)
    found = served(**{name: tf.constant(x) for name, x in queries.items()})["candidate_ids"]
    assert found.shape == (24, 10)
    assert not any(set(f) & set(s) for f, s in zip(found.numpy(), queries["seen"], strict=True))
