"""The task of the study of retrieval: it reads an archive and holds out films by time."""

import zipfile

import numpy as np
import pytest

from scripts.reproductions import retrieval_task
from tests.scripts.reproductions import movielens_files


@pytest.fixture
def task(tmp_path):
    return retrieval_task.Task(*retrieval_task.read(movielens_files.write(tmp_path / "tiny.zip")))


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
    films = retrieval_task._films([*movies, ["5", "Another", "Drama"]])
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
    assert found == sorted(
        (*retrieval_task.history(u[:end]).tolist(), int(u[end])) for u, end in ends
    )


def test_only_the_last_of_a_long_history_count():
    rows = np.arange(100, 170)
    assert retrieval_task.history(rows).tolist() == list(range(170, 120, -1))


MOVIES = "movieId,title,genres\n1,A (1999),Drama\n2,B (1999),Drama\n5,C (1999),Drama\n"
HEAD = "userId,movieId,rating,timestamp\n"


def archive(path, **members):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"ml/{name}.csv", content)
    return path


def test_repeated_ratings_are_left_out(tmp_path):
    ratings = "1,1,4,10\n1,2,4,11\n1,1,5,12\n1,5,4,13\n2,1,3,9\n"
    path = archive(tmp_path / "a.zip", movies=MOVIES, ratings=HEAD + ratings)
    films, users = retrieval_task.read(path)
    assert films.ids.tolist() == [1, 2, 5]
    assert [user.tolist() for user in users] == [[0, 1, 2]]


def test_a_batch_is_not_above_the_examples(tmp_path):
    path = movielens_files.write(tmp_path / "tiny.zip")
    assert len(retrieval_task.load(path, 24 * 6).users) == 24
    with pytest.raises(SystemExit, match="--batch-size must be at most 144, .* not 145"):
        retrieval_task.load(path, 145)
