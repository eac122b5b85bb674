"""The example learns which films a user likes, and exports the search for them."""

import numpy as np
import tensorflow as tf

from examples import movielens_retrieval as example
from tests.scripts.reproductions import movielens_files


def test_reads_films_in_the_order_of_time(tmp_path):
    titles, users = example.read(movielens_files.write(tmp_path / "tiny.zip"))
    assert titles[1] == "The night 1 (1951) Horror" and len(titles) == 60
    assert len(users) == 24 and all(len(user) == 9 for user in users)
    # A user likes one genre of three, and the films of a genre are every third.
    assert all(len(set(user % 3)) == 1 for user in users)


def test_histories_are_cut_and_padded():
    rows = example.padded([np.arange(1, 4), np.arange(1, 8)], 5, 0)
    assert rows.tolist() == [[1, 2, 3, 0, 0], [3, 4, 5, 6, 7]]


def test_learns_and_exports(tmp_path, capsys):
    path = movielens_files.write(tmp_path / "tiny.zip")
    options = f"--width 8 --batch-size 24 --epochs 6 --export {tmp_path / 'saved'}"
    results = example.main(["--zip", str(path), *options.split()])
    # Ten of 60 at random are a sixth; a user likes one genre of three.
    assert results["recall_at_10"] > 1 / 6
    assert sum(line.startswith("after ") for line in capsys.readouterr().out.splitlines()) == 3
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    _, users = example.read(path)
    seen = example.padded(users, 9, -1)
    queries = {"history": example.padded(users, example.HISTORY, 0), "seen": seen}
    found = served(**{name: tf.constant(x) for name, x in queries.items()})["candidate_ids"]
    assert found.shape == (24, 10)
    assert not any(set(f) & set(s) for f, s in zip(found.numpy(), seen, strict=True))
