"""Two towers on MovieLens: losses and sources of negatives, other methods and keras-rs.

    python -m scripts.reproductions.retrieval --zip ml-latest-small.zip

The last film of each user by time is the test item, and the one before it the
validation item. For each user, all films that the user has not rated before are ranked.
All methods learn from the films before these two: the towers learn to predict at most
the last 50 films of each user (`PAIRS`), each from the 50 before it; the other methods
use all films. A user is represented by the films rated last, a film by its id, the
words of its title, its genres and its decade. In training, one film in five comes
without its id, so that a film without ratings can be found by its other features.

Tables (`--tables`): `methods` (two hours of one core), popularity, item-kNN and EASE
(Steck 2019, "Embarrassingly Shallow Autoencoders for Sparse Data") beside towers with
five losses; `negatives` (half an hour), towers with softmax and other choices of
negatives; `libraries` (an hour), this package and keras-rs, as their first retrieval
examples are, and `all set`, with all options for this task: cosines, a temperature,
log-Q, accidental hits masked. `TwoTower` appears twice more: without any option, and
with 512 negatives drawn from all films.

Settings are chosen one after the other by NDCG@10 on the validation items with
`--tuning-seed`; the same metric chooses the epoch of each run.
"""

import csv
import dataclasses
import functools
import importlib.util
import io
import itertools
import pathlib
import re
import zipfile
import zlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import Table, show_all

HISTORY = 50  # the tower reads at most so many films of a user, the last ones
RECENT = 5  # the last films, which are also separate inputs
WORDS = 8  # words of a title
PAIRS = 50  # training pairs per user at most, the last ones
NO_NUMBER = 0.2  # share of films that come without their id in training
INPUTS = ("number", "words", "genres", "decade")  # of the tower of films
COLUMNS = {
    "Recall@10": "recall_at_10",
    "Recall@100": "recall_at_100",
    "NDCG@10": "ndcg_at_10",
    "MRR": "mrr",
    "coverage@10": "coverage",
}
SELECT_BY = "ndcg_at_10"
LOSSES = {
    "softmax": r4c.losses.SoftmaxLoss,
    "Rankmax": r4c.losses.RankmaxLoss,
    "pairwise logistic": r4c.losses.PairwiseLogisticLoss,
    "Top-16 mining": lambda: r4c.losses.OrderedWeightedLoss(
        "pairwise", "hinge", r4c.ops.TopKWeights(16)
    ),
    "ApproxNDCG": r4c.losses.ApproxNDCGLoss,
}


# The task.


@dataclasses.dataclass(frozen=True)
class Task:
    """The films and what each user rated.

    Attributes:
        films: `[N, ...]` arrays by name: `id` as in the archive; `row`; `number`, row +
            1, or 0 for a film that does not occur in training; `words` `[N, WORDS]`, 1
            for a rare word, padded with 0; `genres` `[N, G]` of 0 and 1; `decade`, 0
            for an unknown one, 1 for the one of 1900 and all before it.
        users: the rows of the films of each user in the order of time; the last two are
            held out.
    """

    films: dict[str, np.ndarray]
    users: list[np.ndarray]

    def seen(self, held_out):
        """`[users, films]`, 1 for a film the user rated before the held-out ones."""
        matrix = np.zeros([len(self.users), len(self.films["id"])], np.float32)
        for row, user in zip(matrix, self.users, strict=True):
            row[user[:-held_out]] = 1
        return matrix

    def queries(self, held_out):
        """The inputs of all users, and the rows of the films to find.

        `held_out` is 2 for validation and 1 for testing.
        """
        histories = np.array([history(user[:-held_out]) for user in self.users])
        rows = np.array([user[-held_out] for user in self.users])
        return {"history": histories}, rows

    @functools.cached_property
    def ends(self):
        """Pairs of a user and the place of a film that is a training target."""
        ends = []
        for user in self.users:
            last = len(user) - 2
            ends += [(user, end) for end in range(max(last - PAIRS, 1), last)]
        return ends

    @functools.cached_property
    def counts(self):
        """`[N]`, how often each film is a training target."""
        targets = [user[end] for user, end in self.ends]
        return np.bincount(targets, minlength=len(self.films["id"]))

    def pairs(self, batch_size, seed):
        """Training batches: a film, and the films before it."""
        histories = np.array([history(user[:end]) for user, end in self.ends])
        rows = np.array([user[end] for user, end in self.ends])
        table = {name: tf.constant(values) for name, values in self.films.items()}

        def pair(histories, rows):
            film = {name: tf.gather(values, rows) for name, values in table.items()}
            known = tf.random.uniform(tf.shape(rows), seed=seed) >= NO_NUMBER
            film["number"] *= tf.cast(known, film["number"].dtype)
            return {"history": histories}, film

        batches = tf.data.Dataset.from_tensor_slices((histories, rows))
        batches = batches.shuffle(len(rows), seed=seed).batch(
            batch_size, drop_remainder=True
        )
        return batches.map(pair).prefetch(2)


def history(rows):
    """The numbers of the last films, latest first, padded with 0."""
    numbers = rows[: -HISTORY - 1 : -1] + 1
    return np.pad(numbers, [0, HISTORY - len(numbers)])


def read(path):
    """The task of an archive.

    Films that a user rated in the same second come in a random order, since the file
    sorts them by film. If a user rated a film several times, the first rating counts.
    """
    with zipfile.ZipFile(path) as archive:

        def rows(name):
            (member,) = (m for m in archive.namelist() if m.endswith(f"/{name}"))
            with io.TextIOWrapper(archive.open(member), "utf-8") as lines:
                return list(csv.reader(lines))[1:]

        movies = rows("movies.csv")
        ratings = rows("ratings.csv")
    films = features(movies)
    row_of = {film: row for row, film in enumerate(films["id"].tolist())}

    # The ratings of each user, in the order of time.
    ratings = np.array(ratings)[:, [0, 1, 3]].astype(np.int64)
    ratings = np.random.default_rng(0).permutation(ratings)
    owners, _, times = ratings.T
    ratings = ratings[np.lexsort((times, owners))]
    owners, ids, _ = ratings.T
    items = np.array([row_of[film] for film in ids])

    # The first of each user and film.
    _, first = np.unique(owners * len(row_of) + items, return_index=True)
    kept = np.sort(first)
    starts = np.flatnonzero(np.diff(owners[kept])) + 1
    users = [user for user in np.split(items[kept], starts) if len(user) >= 3]
    rated = np.zeros(len(row_of), bool)
    rated[np.concatenate([user[:-2] for user in users])] = True
    return Task(films | {"number": np.where(rated, films["row"] + 1, 0)}, users)


def features(movies):
    """The features of films, of their ids, titles and genres."""
    ids, titles, genres = zip(*movies, strict=True)
    genres = [of_film.split("|") for of_film in genres]
    names = sorted({*itertools.chain(*genres)})
    has_genre = [[name in of_film for name in names] for of_film in genres]
    return {
        "id": np.array(ids, np.int64),
        "row": np.arange(len(ids)),
        "words": words_of(titles),
        "genres": np.array(has_genre, np.float32),
        "decade": np.array([decade_of(title) for title in titles]),
    }


def decade_of(title):
    """The decade of the year that a title ends in; see `Task`."""
    year = re.search(r"\((\d{4})\)", title)
    return max(int(year[1]) // 10 - 189, 1) if year else 0


def words_of(titles):
    """The numbers of the words of titles; see `Task`."""
    texts = [re.sub(r"\(\d{4}\)", "", title).lower() for title in titles]
    texts = [re.findall(r"[a-z0-9']+", text) for text in texts]
    distinct, counts = np.unique([*itertools.chain(*texts)], return_counts=True)
    number = {word: 2 + i for i, word in enumerate(distinct[counts > 1].tolist())}
    words = np.zeros([len(titles), WORDS], np.int64)
    for row, text in zip(words, texts, strict=True):
        numbers = [number.get(word, 1) for word in text[:WORDS]] or [1]
        row[: len(numbers)] = numbers
    return words


def figures(scores, task, held_out):
    """The metrics of scores `[users, films]`, and the coverage."""
    _, rows = task.queries(held_out)
    scores = np.where(task.seen(held_out) > 0, -np.inf, scores).astype(np.float32)
    measured = [
        r4c.metrics.RecallAtK([10, 100]),
        r4c.metrics.NDCG(10),
        r4c.metrics.MRR(),
    ]
    results = {}
    for metric in measured:
        metric.update_state(rows, scores)
        value = metric.result()
        results |= value if isinstance(value, dict) else {metric.name: value}
    best = np.argpartition(-scores, 9, axis=1)[:, :10]
    results["coverage"] = len(np.unique(best)) / scores.shape[1]
    return {name: float(results[name]) for name in COLUMNS.values()}


# Other methods.


def item_knn(learned, neighbours, shrink):
    """A function of histories that scores films by cosines with the user's films."""
    counts = learned.sum(axis=0)
    similar = learned.T @ learned
    similar /= np.sqrt(np.outer(counts, counts)) + shrink + 1e-9
    np.fill_diagonal(similar, 0)
    last = max(len(similar) - neighbours, 0)
    least = np.partition(similar, last, axis=1)[:, last, np.newaxis]
    similar[similar < least] = 0
    return lambda histories: histories @ similar


def ease(learned, l2):
    """A function of histories that scores films by EASE, inverting a user matrix."""
    learned = learned.astype(float)
    inverse = np.linalg.inv(learned @ learned.T + l2 * np.eye(len(learned)))
    half = inverse @ learned
    diagonal = 1 - np.sum(learned * half, axis=0)
    return lambda histories: (
        histories - (histories - (histories @ learned.T) @ half) / diagonal
    )


class Method(NamedTuple):
    """A method without training by gradients.

    Attributes:
        make: a function of `[users, films]` and settings, to a function that scores.
        choices: the settings to try.
    """

    make: Any
    choices: list[dict[str, Any]]


NEIGHBOURS = [
    {"neighbours": n, "shrink": s} for n in (5, 10, 20, 100) for s in (0, 10, 100)
]
METHODS = {
    "popularity": Method(
        lambda learned: lambda x: np.broadcast_to(learned.sum(axis=0), x.shape),
        [{}],
    ),
    "item-kNN": Method(item_knn, NEIGHBOURS),
    "EASE": Method(ease, [{"l2": l2} for l2 in (10, 30, 100, 300, 1000, 3000)]),
}


# Towers.


def make_towers(task, width):
    """The encoders of users and of films."""
    films = task.films
    num_numbers = len(films["id"]) + 1
    return tower_of_users(num_numbers, width), tower_of_films(films, num_numbers, width)


def tower_of_users(num_numbers, width):
    """Encodes the last films: the mean of all, of the latest, and what follows."""
    inputs = keras.layers.Input([HISTORY], dtype="int32", name="history")
    embedding = keras.layers.Embedding(num_numbers, width, mask_zero=True)
    mean = keras.layers.GlobalAveragePooling1D()
    parts = [mean(embedding(inputs)), mean(embedding(inputs[:, :RECENT]))]
    parts.append(of_hidden_layer(parts, width))
    return keras.Model({"history": inputs}, keras.layers.Add()(parts))


def tower_of_films(films, num_numbers, width):
    """Encodes a film by its number and by what is known of it."""
    inputs = {}
    for name in INPUTS:
        dtype = "float32" if name == "genres" else "int32"
        inputs[name] = keras.layers.Input(films[name].shape[1:], dtype=dtype, name=name)
    num_words = int(films["words"].max()) + 1
    num_decades = int(films["decade"].max()) + 1
    words = keras.layers.Embedding(num_words, width, mask_zero=True)(inputs["words"])
    parts = [
        keras.layers.GlobalAveragePooling1D()(words),
        keras.layers.Dense(width)(inputs["genres"]),
        keras.layers.Embedding(num_decades, width)(inputs["decade"]),
    ]
    parts.append(of_hidden_layer(parts, width))
    parts.append(keras.layers.Embedding(num_numbers, width)(inputs["number"]))
    return keras.Model(inputs, keras.layers.Add()(parts))


def of_hidden_layer(parts, width):
    """What a hidden layer and a linear one make of the parts of an encoding."""
    joined = keras.layers.Concatenate()(parts)
    hidden = keras.layers.Dense(width, "relu")(joined)
    return keras.layers.Dense(width)(hidden)


def two_tower(task, towers, seed, loss="softmax", log_q=None, **options):
    """A `TwoTower` with `log_q` frequencies "counted", or "known" from the start."""
    ids = task.films["id"]
    known = np.zeros(ids.max() + 1, int)
    known[ids] = task.counts
    options["frequencies"] = {
        None: None,
        "counted": r4c.layers.CandidateFrequencies(len(known)),
        "known": r4c.layers.CandidateFrequencies.from_counts(known),
    }[log_q]
    model = r4c.models.TwoTower(*towers, candidate_id="id", seed=seed, **options)
    model.index(task.films)
    return model, LOSSES[loss]()


def keras_rs(task, towers, seed, all_set, temperature=1.0, num_mined=None):
    """The layers of keras-rs, with the inner products of a batch or all set."""
    from keras_rs import layers

    share = tf.constant(np.maximum(task.counts, 1) / task.counts.sum(), tf.float32)

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.queries, self.films = towers
            self.hits = layers.RemoveAccidentalHits()
            self.correction = layers.SamplingProbabilityCorrection()
            self.mining = layers.HardNegativeMining(num_mined) if num_mined else None

        def call(self, inputs):
            return self.queries(inputs)

        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ):
            films = self.films({name: y[name] for name in INPUTS})
            labels = tf.eye(tf.shape(y_pred)[0])
            if all_set:
                y_pred, films = (
                    tf.math.l2_normalize(x, axis=1) for x in (y_pred, films)
                )
            scores = tf.matmul(y_pred, films, transpose_b=True) / temperature
            if all_set:
                scores = self.correction(scores, tf.gather(share, y["row"]))
                scores = self.hits(scores, labels, y["id"])
            if self.mining is not None:
                scores, labels = self.mining(scores, labels)
            return super().compute_loss(x, labels, scores)

    return Model(), keras.losses.CategoricalCrossentropy(from_logits=True)


class Towers(NamedTuple):
    """A way to train towers.

    Attributes:
        make: `two_tower` or `keras_rs`.
        options: arguments of `make`.
        choices: lists of settings to try, one list after the other.
    """

    make: Any
    options: dict[str, Any]
    choices: list[Any]


TEMPERATURES = [{"temperature": t} for t in (0.05, 0.2, 0.5, 1.0)]
# The rate is chosen after the temperature, which is chosen with this rate.
RATE = 0.003
RATES = [{"learning_rate": rate} for rate in (0.001, RATE, 0.01, 0.03)]
OF_LOSSES = {
    f"towers, {loss}": Towers(
        two_tower,
        # log-Q corrects a sum, which the other losses lack.
        {
            "loss": loss,
            "num_random": 512,
            "log_q": "counted" if loss == "softmax" else None,
        },
        [TEMPERATURES, RATES],
    )
    for loss in LOSSES
}
NEGATIVES = {
    "softmax, negatives in the batch alone": Towers(two_tower, {}, []),
    "softmax, negatives in the batch, log-Q": Towers(
        two_tower, {"log_q": "counted"}, []
    ),
    "softmax, negatives in the batch and drawn": Towers(
        two_tower, {"num_random": 512}, []
    ),
    "softmax, negatives and of earlier batches, log-Q": Towers(
        two_tower, {"num_random": 512, "log_q": "counted", "memory_size": 2048}, []
    ),
}
GUIDE = {"temperature": 0.1, "log_q": "counted", "num_random": 64}
ALL_SET = [
    [{"temperature": t} for t in (0.1, 0.2, 0.5)],
    [{"num_mined": n} for n in (None, 64)],
]
LIBRARIES = {
    "keras-rs, as its guide": Towers(keras_rs, {"all_set": False}, []),
    "keras-rs, all set": Towers(keras_rs, {"all_set": True}, ALL_SET),
    "rank4class_tf, without options": Towers(two_tower, {}, []),
    "rank4class_tf, as its guide": Towers(two_tower, GUIDE, []),
    "rank4class_tf, all set": Towers(two_tower, {"log_q": "known"}, ALL_SET),
    "rank4class_tf, and drawn": Towers(
        two_tower, {"log_q": "known", "num_random": 512}, ALL_SET
    ),
}


def run_towers(row, settings, task, seed, args):
    """The figures of towers at their best epoch, and the seconds of a step."""
    way = (OF_LOSSES | NEGATIVES | LIBRARIES)[row]
    options = dict(settings)
    rate = options.pop("learning_rate", 0.01)
    towers = make_towers(task, args.width)
    batches = task.pairs(args.batch_size, seed)
    model, loss = way.make(task, towers, seed, **way.options, **options)
    model.compile(keras.optimizers.Adam(rate), loss)
    films = {name: task.films[name] for name in INPUTS}

    def scores(held_out):
        queries, _ = task.queries(held_out)
        parts = zip(towers, (queries, films), strict=True)
        parts = [tower.predict(x, batch_size=512, verbose=0) for tower, x in parts]
        if way.make is two_tower or way.options["all_set"]:
            parts = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in parts]
        of_users, of_films = parts
        return of_users @ of_films.T

    trained = common.train_to_best(
        model,
        args.epochs,
        lambda epoch: model.fit(batches, epochs=1, shuffle=False, verbose=0),
        lambda: figures(scores(2), task, 2),
        SELECT_BY,
        patience=2,
    )
    seconds = np.diff([0, *(point["cpu_seconds"] for point in trained.history)])
    return {
        "validation": trained.best,
        "test": figures(scores(1), task, 1),
        "step": float(seconds.min()) / len(batches),
    }


# Tables.


def run_method(row, settings, task, seed, args):
    """The figures of one of the other methods."""
    score = METHODS[row].make(task.seen(2), **settings)
    held_out = {"validation": 2, "test": 1}
    return {part: figures(score(task.seen(n)), task, n) for part, n in held_out.items()}


class Study(common.Study):
    """The runs of one row."""

    def __init__(self, row, task, args):
        def make(settings, seed, test):
            keras.backend.clear_session()
            keras.utils.set_random_seed(seed)
            run = run_method if row in METHODS else run_towers
            return run(row, settings, task, seed, args)

        super().__init__(
            args,
            make,
            select_by=SELECT_BY,
            options=("width", "epochs", "batch_size"),
            row=row,
            data=zlib.crc32(args.zip.read_bytes()),
        )

    def chosen(self, lists, settings):
        """Settings, after one choice of each list, one list after the other."""
        for choices in lists:
            runs = self.tried([settings | choice for choice in choices])
            settings = self.best(runs).settings
        return settings


def cells(row, runs):
    """The cells of a row."""
    settings = runs[0].settings.items()
    return [
        row,
        *common.reached(runs, COLUMNS.values()),
        ", ".join(f"{key}={value}" for key, value in settings),
        common.best_epochs(runs),
    ]


def rows_of_methods(task, args):
    """The rows of the methods and of towers with each loss."""
    for row, method in METHODS.items():
        study = Study(row, task, args)
        settings = study.chosen([method.choices], {})
        # They draw nothing, so that one seed stands for all.
        yield cells(row, [study.run(settings, args.tuning_seed, test=True)])
    for row, towers in OF_LOSSES.items():
        study = Study(row, task, args)
        settings = study.chosen(towers.choices, {"learning_rate": RATE})
        yield cells(row, study.tested(settings))


def rows_of_negatives(task, args):
    """The rows of other negatives, with the settings of softmax."""
    row = "towers, softmax"
    choices = OF_LOSSES[row].choices
    settings = Study(row, task, args).chosen(choices, {"learning_rate": RATE})
    for row in NEGATIVES:
        yield cells(row, Study(row, task, args).tested(settings))


def rows_of_libraries(task, args):
    """The rows of this package and, where it is installed, of keras-rs."""
    has_keras_rs = importlib.util.find_spec("keras_rs") is not None
    for row, towers in LIBRARIES.items():
        if towers.make is keras_rs and not has_keras_rs:
            continue
        study = Study(row, task, args)
        runs = study.tested(study.chosen(towers.choices, {}))
        step = min(run.kept["step"] for run in runs)
        yield [*cells(row, runs), f"{1e3 * step:.0f}"]


def tables_of(args):
    """The tables."""
    task = read(args.zip)
    head = ["method", *COLUMNS, "settings", "epochs"]
    if "methods" in args.tables:
        size = f"{len(task.users)} users, {len(task.films['id']):,} films"
        yield Table(f"Methods: {size}", head, list(rows_of_methods(task, args)))
    if "negatives" in args.tables:
        yield Table("Negatives", head, list(rows_of_negatives(task, args)))
    if "libraries" in args.tables:
        rows = list(rows_of_libraries(task, args))
        yield Table("Libraries", [*head, "step, CPU ms"], rows)


def main(argv=None):
    """Runs the study and shows the tables."""
    quick = {"tables": ["negatives"], "seeds": [0], "width": 8, "epochs": 1}
    parser = common.parser(__spec__, __doc__, quick)
    add = parser.add_value
    count = command_line.count
    path = pathlib.Path
    add("--zip", path, path("ml-latest-small.zip"), "MovieLens")
    parser.add_names("--tables", ("methods", "negatives", "libraries"), "tables")
    add("--width", count, 64, "of encodings")
    add("--epochs", count, 10, "maximum number of epochs of the towers")
    add("--batch-size", count, 512, "pairs a step")
    args = parser.parse_args(argv)
    show_all(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
