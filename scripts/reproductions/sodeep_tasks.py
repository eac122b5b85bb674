"""The tasks of sodeep.py: data, small models, losses and metrics."""

import collections
import csv
import dataclasses
import functools
import io
import pathlib
import re
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import evaluation, losses, metrics

CLASSES_OF_GOEMOTIONS = 28


@dataclasses.dataclass(frozen=True)
class Task:
    """A task: everything but the method.

    Attributes:
        inputs: arrays whose rows are examples.
        labels: what the losses and `evaluate` take, a row for each example.
        split: seed -> name of a part -> its rows.
        make_model: returns a new model; it is called with a tuple of the inputs.
        baselines: name -> loss.
        with_sorter: sorter -> loss.
        evaluate: labels, outputs -> figures.
        metric: the figure that selects, the higher the better.
        epochs: maximum number of epochs; the command line can change it.
        evaluate_every: how many epochs lie between evaluations.
    """

    inputs: tuple[np.ndarray, ...]
    labels: np.ndarray
    split: Callable[[int], dict[str, np.ndarray]]
    make_model: Callable[[], Any]
    baselines: dict[str, Any]
    with_sorter: Callable[[Any], Any]
    evaluate: Callable[[np.ndarray, np.ndarray], dict[str, float]]
    metric: str
    epochs: int
    evaluate_every: int = 1


def random_split(count, seed):
    """60 % of the rows for training, 20 % for validation, 20 % for testing."""
    rows = np.random.default_rng([seed, 1]).permutation(count)
    parts = np.split(rows, [count * 6 // 10, count * 8 // 10])
    return dict(zip(("train", "validation", "test"), parts, strict=True))


class Perceptron(keras.Model):
    """Hidden layers with ReLU, then a linear layer."""

    def __init__(self, hidden, outputs):
        super().__init__()
        layers = [keras.layers.Dense(units, activation="relu") for units in hidden]
        self.network = keras.Sequential([*layers, keras.layers.Dense(outputs)])

    def call(self, inputs):
        """Outputs `[batch, outputs]`."""
        return self.network(inputs[0])


class BagOfWords(keras.Model):
    """The sum of embeddings over the root of their number, then a hidden layer; 0 is padding."""

    def __init__(self, num_words, units, outputs):
        super().__init__()
        self.embed = keras.layers.Embedding(num_words, units)
        self.network = Perceptron([units], outputs)

    def call(self, inputs):
        """Outputs `[batch, outputs]`."""
        present = tf.cast(inputs[0] > 0, tf.float32)[:, :, tf.newaxis]
        count = tf.maximum(tf.reduce_sum(present, axis=1), 1)
        total = tf.reduce_sum(tf.cast(self.embed(inputs[0]), tf.float32) * present, axis=1)
        return self.network((total / tf.sqrt(count),))


class TwoTowers(keras.Model):
    """A linear encoder for each side; cosines of all pairs of a batch."""

    def __init__(self, units):
        super().__init__()
        self.encoders = [keras.layers.Dense(units) for _ in range(2)]

    def call(self, inputs):
        """Similarities `[batch, batch]`."""
        one, other = (
            tf.math.l2_normalize(encode(side), axis=1)
            for encode, side in zip(self.encoders, inputs, strict=True)
        )
        return tf.matmul(one, other, transpose_b=True)


# -- Spearman's correlation ------------------------------------------------------------------------


def spearman(labels, outputs):
    """Spearman's correlation of a part."""
    metric = metrics.SpearmanCorrelation(max_examples=len(labels))
    metric.update_state(labels, outputs)
    return {"spearman": float(metric.result())}


def standardized(values):
    """Columns of mean 0 and variance 1."""
    return (values - values.mean(axis=0)) / values.std(axis=0)


def regression(features, labels, epochs, evaluate_every):
    """A regression whose outputs should be in order: squared and absolute error, and ranks.

    Labels are standardised. For a tenth of the task's own epochs, whatever --epochs says, the
    absolute error is added to the loss on ranks, as in the paper's domain alignment.
    """
    labels = standardized(labels)

    def with_sorter(sorter):
        return losses.SpearmanLoss(sorter, alignment=tf.Variable(1.0))

    return Task(
        inputs=(features.astype(np.float32),),
        labels=labels.astype(np.float32)[:, np.newaxis],
        split=functools.partial(random_split, len(labels)),
        make_model=lambda: Perceptron([64], 1),
        baselines={
            "MSE": keras.losses.MeanSquaredError(),
            "L1": keras.losses.MeanAbsoluteError(),
        },
        with_sorter=with_sorter,
        evaluate=spearman,
        metric="spearman",
        epochs=epochs,
        evaluate_every=evaluate_every,
    )


def diabetes(data_dir):
    """scikit-learn's diabetes: the progress of an illness, from ten measurements."""
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    return regression(standardized(data.data), data.target, epochs=60, evaluate_every=5)


def films(data_dir):
    """The mean rating of films with at least five ratings, from year, genres and tags."""
    all_films = read_films(data_dir)
    words = bag([film.genres + film.tags for film in all_films], fewest=5)
    years = np.array([film.year for film in all_films], np.float32)
    known = years > 0
    years[~known] = years[known].mean()
    ratings = np.array([np.mean(film.ratings) for film in all_films])
    features = np.column_stack([standardized(years), words])
    return regression(features, ratings, epochs=30, evaluate_every=2)


# -- Mean average precision ------------------------------------------------------------------------


def mean_average_precision(labels, outputs):
    """Mean over the classes of the average precision of a part."""
    metric = metrics.MeanAveragePrecision(labels.shape[1], max_examples=len(labels))
    metric.update_state(labels, outputs)
    return {"mean_average_precision": float(metric.result())}


def soft_margin(labels, outputs):
    """Multi-label soft margin: the cross-entropy of a sigmoid for each class."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, outputs))


def goemotions(data_dir, ranks_weight):
    """GoEmotions with all labels: soft margin, without and with the loss on ranks."""
    parts = {}
    for part, name in (("train", "train"), ("validation", "dev"), ("test", "test")):
        with open(pathlib.Path(data_dir) / f"{name}.tsv", encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        words = [re.findall(r"[\w']+|[?!]", line[0].lower()) for line in lines]
        labels = np.zeros((len(lines), CLASSES_OF_GOEMOTIONS), np.float32)
        for row, line in zip(labels, lines, strict=True):
            row[[int(number) for number in line[1].split(",")]] = 1
        parts[part] = words, labels
    counts = collections.Counter(word for words in parts["train"][0] for word in words)
    # 0 is padding, 1 is any other word.
    numbers = {word: index + 2 for index, (word, _) in enumerate(counts.most_common(4_000))}
    length = 24
    tokens = [
        [numbers.get(word, 1) for word in words[:length]] + [0] * (length - len(words))
        for words, _ in parts.values()
        for words in words
    ]
    ends = np.cumsum([len(labels) for _, labels in parts.values()])
    rows = dict(zip(parts, np.split(np.arange(ends[-1]), ends[:-1]), strict=True))

    def with_sorter(sorter):
        of_ranks = losses.MeanAveragePrecisionLoss(sorter)

        def both(labels, outputs):
            return soft_margin(labels, outputs) + ranks_weight * of_ranks(labels, outputs)

        return both

    return Task(
        inputs=(np.array(tokens, np.int32),),
        labels=np.concatenate([labels for _, labels in parts.values()]),
        split=lambda seed: rows,
        make_model=lambda: BagOfWords(len(numbers) + 2, 32, CLASSES_OF_GOEMOTIONS),
        baselines={"soft margin": soft_margin},
        with_sorter=with_sorter,
        evaluate=mean_average_precision,
        metric="mean_average_precision",
        epochs=8,
    )


def synthetic(data_dir):
    """20,000 normal points; the fifth that a random network scores highest is positive."""
    rng = np.random.default_rng(2016)
    points = rng.standard_normal((20_000, 10))
    scores = points
    for units in (10, 10, 10):
        scores = np.maximum(scores @ rng.standard_normal((scores.shape[1], units)), 0)
    scores = scores @ rng.standard_normal(scores.shape[1])
    labels = scores > np.quantile(scores, 0.8)
    return Task(
        inputs=(points.astype(np.float32),),
        labels=labels.astype(np.float32)[:, np.newaxis],
        split=functools.partial(random_split, len(points)),
        make_model=lambda: Perceptron([32, 32], 1),
        baselines={"cross-entropy": soft_margin, "HingeAP": hinge_ap},
        with_sorter=losses.MeanAveragePrecisionLoss,
        evaluate=mean_average_precision,
        metric="mean_average_precision",
        epochs=8,
    )


def hinge_ap(labels, outputs):
    r"""Structured hinge loss of the average precision, of one class.

    $$\max_\pi \; 1 - \mathrm{AP}(\pi) + F(\pi) - F(y), \qquad
    F(\pi) = \frac{1}{P N} \sum_{i \in +, j \in -} \pm (s_i - s_j)$$

    with + where the order π has i above j.

    Source: Yue et al. 2007, "A support vector method for optimizing average precision", section
    4.1: each negative, from the best on, finds its best place among the sorted positives.

    Args:
        labels: `[batch, 1]`, 1 for a positive.
        outputs: scores `[batch, 1]`.
    """
    order = tf.argsort(tf.reshape(outputs, [-1]), direction="DESCENDING")
    scores = tf.gather(tf.reshape(outputs, [-1]), order)
    positive = tf.gather(tf.reshape(labels, [-1]), order) > 0
    positives, negatives = (tf.boolean_mask(scores, chosen) for chosen in (positive, ~positive))
    num_positives = tf.cast(tf.size(positives), scores.dtype)
    num_negatives = tf.cast(tf.size(negatives), scores.dtype)
    pairs = tf.maximum(num_positives * num_negatives, 1)
    i = tf.range(1, num_positives + 1)[:, tf.newaxis]
    j = tf.range(1, num_negatives + 1)[tf.newaxis, :]
    margins = 2 * (positives[:, tf.newaxis] - negatives[tf.newaxis, :]) / pairs
    # The gain if negative j is above positive i, as the j - 1 negatives before it are.
    gains = (j / (i + j) - (j - 1) / (i + j - 1)) / tf.maximum(num_positives, 1) - margins
    below = tf.cumsum(tf.stop_gradient(gains), axis=0, reverse=True)
    ending = tf.concat([below, tf.zeros_like(negatives)[tf.newaxis, :]], axis=0)
    place = tf.cast(tf.argmax(ending, axis=0), scores.dtype)[tf.newaxis, :]
    above = tf.cast(i > place, scores.dtype)  # `place` is how many positives stay above j.
    hits = i[:, 0] / (i[:, 0] + tf.reduce_sum(above, axis=1))
    loss = 1 - tf.math.divide_no_nan(tf.reduce_sum(hits), num_positives)
    return tf.where(num_positives > 0, loss - tf.reduce_sum(above * margins), 0)


# -- Recall ----------------------------------------------------------------------------------------


def both_ways(labels, outputs):
    """Recall at 1, 5 and 10 and the median rank, in both directions."""
    figures = evaluation.evaluate_retrieval(outputs)
    flat = {f"{side}_{name}": x for side, part in figures.items() for name, x in part.items()}
    mean = np.mean([flat["rows_hit_rate_at_10"], flat["columns_hit_rate_at_10"]])
    return {**flat, "mean_hit_rate_at_10": float(mean)}


def triplet(labels, outputs):
    """Triplet loss on scores, hardest negatives of rows and columns, margin 0.2."""
    own = tf.linalg.diag_part(outputs)
    others = tf.linalg.set_diag(outputs, tf.fill(tf.shape(own), -2.0))
    hardest = [tf.reduce_max(others, axis=axis) for axis in (0, 1)]
    return tf.add_n([tf.reduce_mean(tf.nn.relu(0.2 + x - own)) for x in hardest])


def retrieval(data_dir):
    """Films with at least five ratings: title, genres and tags, and the users who rated them."""
    all_films = read_films(data_dir)
    words = bag([film.title + film.genres + film.tags for film in all_films], fewest=3)
    users = np.zeros((len(all_films), max(max(film.users) for film in all_films)), np.float32)
    for row, film in zip(users, all_films, strict=True):
        row[np.array(film.users) - 1] = 1
    inputs = tuple(x / np.sqrt(np.maximum(x.sum(axis=1, keepdims=True), 1)) for x in (words, users))
    return Task(
        inputs=inputs,
        labels=np.arange(len(all_films), dtype=np.int32),
        split=functools.partial(random_split, len(all_films)),
        make_model=lambda: TwoTowers(64),
        baselines={"triplet": triplet},
        with_sorter=losses.RankTripletLoss,
        evaluate=both_ways,
        metric="mean_hit_rate_at_10",
        epochs=20,
        evaluate_every=2,
    )


# -- Films -----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Film:
    """A film with its ratings and its words; a word begins with its source, such as "genre"."""

    title: list
    year: int
    genres: list
    tags: list
    ratings: list
    users: list


def read_films(data_dir, fewest_ratings=5):
    """The films of ml-latest-small.zip with at least so many ratings, in the file's order."""
    films = {}
    with zipfile.ZipFile(pathlib.Path(data_dir) / "ml-latest-small.zip") as archive:

        def rows(name):
            with archive.open(f"ml-latest-small/{name}.csv") as file:
                yield from csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))

        for row in rows("movies"):
            year = re.search(r"\((\d{4})\)\s*$", row["title"])
            title = row["title"][: year.start()] if year else row["title"]
            films[row["movieId"]] = Film(
                title=[f"title {word}" for word in re.findall(r"\w+", title.lower())],
                year=int(year[1]) if year else 0,
                genres=[f"genre {genre}" for genre in row["genres"].split("|")],
                tags=[],
                ratings=[],
                users=[],
            )
        for row in rows("tags"):
            words = re.findall(r"\w+", row["tag"].lower())
            films[row["movieId"]].tags.extend(f"tag {word}" for word in words)
        for row in rows("ratings"):
            film = films[row["movieId"]]
            film.ratings.append(float(row["rating"]))
            film.users.append(int(row["userId"]))
    return [film for film in films.values() if len(film.ratings) >= fewest_ratings]


def bag(words_of_rows, fewest):
    """float32 `[rows, words]`: 1 where a row has a word; only words of at least so many rows."""
    counts = collections.Counter(word for words in words_of_rows for word in set(words))
    kept = sorted(word for word, count in counts.items() if count >= fewest)
    column = {word: index for index, word in enumerate(kept)}
    result = np.zeros((len(words_of_rows), len(kept)), np.float32)
    for row, words in zip(result, words_of_rows, strict=True):
        row[[column[word] for word in words if word in column]] = 1
    return result


TASKS = {
    "synthetic": synthetic,
    "diabetes": diabetes,
    "films": films,
    "goemotions": goemotions,
    "retrieval": retrieval,
}
