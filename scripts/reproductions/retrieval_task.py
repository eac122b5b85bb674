"""The task and the towers of retrieval.py: the next film of a user, on MovieLens.

The last film of each user, by time, is the test item, and the one before it the validation item. In
training, the model predicts each of the last 50 of the others from the films before it. A user is
represented by the films rated last, a film by its id, the words of its title, its genres and its
decade. In training, one film in five comes without its id. So a film without ratings in training,
whose id is unknown, can still be found by its other features.
"""

import csv
import dataclasses
import io
import pathlib
import re
import zipfile
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, models

HISTORY = 50  # the tower reads at most so many films of a user, the last ones
RECENT = 5  # the last films, which are also separate inputs
WORDS = 8  # words of a title
PAIRS = 50  # training pairs per user at most, the last ones
NO_NUMBER = 0.2  # share of films that come without their id in training


@dataclasses.dataclass(frozen=True)
class Films:
    """All films.

    Attributes:
        ids: `[N]`, as in the archive.
        titles: their titles, with the year.
        genres: `[N, G]` of 0 and 1.
        words: `[N, WORDS]`, numbers of the words of the title, 1 for a rare word, padded with 0.
        decades: `[N]`, 0 for an unknown decade, 1 for the one of 1900 and all before it.
        num_words: how many numbers of words there are.
        num_decades: how many numbers of decades there are.
    """

    ids: np.ndarray
    titles: list[str]
    genres: np.ndarray
    words: np.ndarray
    decades: np.ndarray
    num_words: int
    num_decades: int

    def features(self, rated: np.ndarray) -> dict[str, np.ndarray]:
        """The input features of all films; only films that are `rated` `[N]` have a number."""
        numbers = np.where(rated, np.arange(1, len(self.ids) + 1), 0)
        return {
            "id": self.ids,
            "number": numbers,
            "words": self.words,
            "genres": self.genres,
            "decade": self.decades,
        }


def read(path: pathlib.Path) -> tuple[Films, list[np.ndarray]]:
    """The films, and for each user the rows of the films in the order of time.

    Films that a user rated in the same second come in a random order, since the file sorts them by
    film. If a user rated a film several times, the first rating counts.
    """
    with zipfile.ZipFile(path) as archive:

        def rows(name):
            (member,) = (m for m in archive.namelist() if m.endswith(f"/{name}"))
            with io.TextIOWrapper(archive.open(member), "utf-8") as lines:
                return list(csv.reader(lines))[1:]

        films = _films(rows("movies.csv"))
        ratings = np.array(rows("ratings.csv"))[:, [0, 1, 3]].astype(np.int64)
    row_of = {film: row for row, film in enumerate(films.ids.tolist())}
    ratings = np.random.default_rng(0).permutation(ratings)
    ratings = ratings[np.lexsort((ratings[:, 2], ratings[:, 0]))]
    items = np.array([row_of[film] for film in ratings[:, 1]])
    _, first = np.unique(ratings[:, 0] * len(films.ids) + items, return_index=True)
    kept = np.sort(first)
    starts = np.flatnonzero(np.diff(ratings[kept, 0])) + 1
    return films, [user for user in np.split(items[kept], starts) if len(user) >= 3]


def _films(movies):
    titles = [title for _, title, _ in movies]
    years = [re.search(r"\((\d{4})\)", title) for title in titles]
    decades = np.array([max(int(year[1]) // 10 - 189, 1) if year else 0 for year in years])
    texts = [re.findall(r"[a-z0-9']+", re.sub(r"\(\d{4}\)", "", t).lower()) for t in titles]
    distinct, counts = np.unique([word for text in texts for word in text], return_counts=True)
    number = {word: 2 + i for i, word in enumerate(distinct[counts > 1].tolist())}
    words = np.zeros([len(movies), WORDS], np.int64)
    for row, text in enumerate(texts):
        numbers = [number.get(word, 1) for word in text[:WORDS]] or [1]
        words[row, : len(numbers)] = numbers
    names = sorted({genre for *_, genres in movies for genre in genres.split("|")})
    genres = np.array([[name in g.split("|") for name in names] for *_, g in movies], np.float32)
    ids = np.array([int(film) for film, *_ in movies])
    return Films(ids, titles, genres, words, decades, len(number) + 2, int(decades.max()) + 1)


def history(rows: np.ndarray) -> np.ndarray:
    """The numbers of the last films, latest first, padded with 0."""
    numbers = rows[: -HISTORY - 1 : -1] + 1
    return np.pad(numbers, [0, HISTORY - len(numbers)])


@dataclasses.dataclass(frozen=True)
class Task:
    """The data of the task: the films, and what each user rated.

    Attributes:
        films: the films.
        users: the films of each user in the order of time; the last two are held out.
    """

    films: Films
    users: list[np.ndarray]

    @property
    def rated(self) -> np.ndarray:
        """`[N]`, which films occur in training."""
        rated = np.zeros(len(self.films.ids), bool)
        rated[np.concatenate([user[:-2] for user in self.users])] = True
        return rated

    @property
    def ends(self) -> list[tuple[np.ndarray, int]]:
        """Pairs of a user and the place of a film that is a training target."""
        return [
            (user, end)
            for user in self.users
            for end in range(max(len(user) - 2 - PAIRS, 1), len(user) - 2)
        ]

    def pairs(self, batch_size: int, seed: int) -> tf.data.Dataset:
        """Training batches: a film, and the films before it."""
        pairs = self.ends
        histories = np.array([history(user[:end]) for user, end in pairs])
        rows = np.array([user[end] for user, end in pairs])
        features = self.films.features(self.rated)
        table = {name: tf.constant(values) for name, values in features.items()}

        def pair(histories, rows):
            film = {name: tf.gather(values, rows) for name, values in table.items()}
            known = tf.random.uniform(tf.shape(rows), seed=seed) >= NO_NUMBER
            film["number"] *= tf.cast(known, film["number"].dtype)
            return {"history": histories}, film

        batches = tf.data.Dataset.from_tensor_slices((histories, rows))
        batches = batches.shuffle(len(rows), seed=seed).batch(batch_size, drop_remainder=True)
        return batches.map(pair).prefetch(2)

    def queries(self, held_out: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Features of all users, and the row of the film to find.

        Args:
            held_out: 2 for validation, 1 for testing.
        """
        before = [user[:-held_out] for user in self.users]
        longest = max(map(len, before))
        seen = [
            np.pad(self.films.ids[rows], [0, longest - len(rows)], constant_values=-1)
            for rows in before
        ]
        queries = {"history": np.array([history(rows) for rows in before]), "seen": np.array(seen)}
        return queries, np.array([user[-held_out] for user in self.users])


def load(path: pathlib.Path, batch_size: int) -> Task:
    """The task of an archive, with at least one training batch."""
    task = Task(*read(path))
    if batch_size > (most := len(task.ends)):
        raise SystemExit(f"--batch-size must be at most {most}, the examples, not {batch_size}")
    return task


def towers(films: Films, width: int) -> tuple[keras.Model, keras.Model]:
    """The encoders of users and of films."""
    size = len(films.ids) + 1
    inputs = keras.layers.Input([HISTORY], dtype="int32", name="history")
    embedding = keras.layers.Embedding(size, width, mask_zero=True)
    mean = keras.layers.GlobalAveragePooling1D()
    parts = [mean(embedding(inputs)), mean(embedding(inputs[:, :RECENT]))]
    hidden = keras.layers.Dense(width, "relu")(keras.layers.Concatenate()(parts))
    parts.append(keras.layers.Dense(width)(hidden))
    users = keras.Model({"history": inputs}, keras.layers.Add()(parts))

    number = keras.layers.Input([], dtype="int32", name="number")
    words = keras.layers.Input([WORDS], dtype="int32", name="words")
    genres = keras.layers.Input([films.genres.shape[1]], name="genres")
    decade = keras.layers.Input([], dtype="int32", name="decade")
    embedded = keras.layers.Embedding(films.num_words, width, mask_zero=True)(words)
    known = [
        keras.layers.GlobalAveragePooling1D()(embedded),
        keras.layers.Dense(width)(genres),
        keras.layers.Embedding(films.num_decades, width)(decade),
    ]
    hidden = keras.layers.Dense(width, "relu")(keras.layers.Concatenate()(known))
    known.append(keras.layers.Dense(width)(hidden))
    known.append(keras.layers.Embedding(size, width)(number))
    inputs = {"number": number, "words": words, "genres": genres, "decade": decade}
    return users, keras.Model(inputs, keras.layers.Add()(known))


def build(
    task: Task,
    loss: losses.RankingLoss,
    width: int = 64,
    learning_rate: float = 3e-3,
    log_q: bool = True,
    num_random: int = 512,
    seed: int = 0,
    **kwargs: Any,
) -> models.TwoTower:
    """The compiled model, with all films in its index."""
    keras.utils.set_random_seed(seed)
    model = models.TwoTower(
        *towers(task.films, width),
        candidate_id="id",
        exclude="seen",
        frequencies=layers.CandidateFrequencies(int(task.films.ids.max()) + 1) if log_q else None,
        num_random=num_random,
        seed=seed,
        **kwargs,
    )
    model.compile(
        keras.optimizers.Adam(learning_rate),
        loss=loss,
        metrics=[metrics.RecallAtK([10, 100]), metrics.NDCG(10), metrics.MRR()],
    )
    model.index(task.films.features(task.rated))
    return model


def train(
    model: models.TwoTower, task: Task, epochs: int, batch_size: int, seed: int, verbose: int = 2
) -> dict[str, list[float]]:
    """Trains, keeps the epoch with the best validation NDCG@10, and returns the history."""
    queries, rows = task.queries(held_out=2)
    best = keras.callbacks.EarlyStopping(
        "val_ndcg_at_10", mode="max", patience=2, restore_best_weights=True
    )
    history = model.fit(
        task.pairs(batch_size, seed),
        validation_data=(queries, {name: x[rows] for name, x in _features(task).items()}),
        epochs=epochs,
        callbacks=[best],
        shuffle=False,  # The dataset shuffles itself.
        verbose=verbose,
    )
    return history.history


def measure(model: models.TwoTower, task: Task, held_out: int) -> dict[str, float]:
    """Validation or test metrics, and the share of films among the best 10 of any user."""
    queries, rows = task.queries(held_out)
    films = {name: values[rows] for name, values in _features(task).items()}
    results = model.evaluate(queries, films, batch_size=64, return_dict=True, verbose=0)
    _, ids = model.top_k(queries, 10)
    coverage = len(np.unique(ids)) / len(task.films.ids)
    names = ("recall_at_10", "recall_at_100", "ndcg_at_10", "mrr")
    return {**{name: float(results[name]) for name in names}, "coverage": coverage}


def _features(task):
    return task.films.features(task.rated)
