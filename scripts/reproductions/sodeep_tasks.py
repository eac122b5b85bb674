"""The tasks of `sodeep`: data, small models, losses, and the figures of outputs."""

import collections
import csv
import dataclasses
import io
import re
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import evaluation, losses, metrics


@dataclasses.dataclass(frozen=True)
class Task:
    """A task: everything but the method and the sorter.

    Attributes:
        inputs: arrays whose rows are examples.
        labels: what the losses and `evaluate` take, a row for each example.
        make_model: returns a new model, which takes the inputs.
        baselines: name -> loss.
        with_sorter: sorter -> loss.
        evaluate: labels, outputs -> figures.
        select_by: the figure that chooses rate and epoch, the higher the better.
        epochs: maximum number of epochs; the command line can change it.
        every: how many epochs lie between evaluations.
    """

    inputs: list[np.ndarray]
    labels: np.ndarray
    make_model: Callable[[], Any]
    baselines: dict[str, Any]
    with_sorter: Callable[[Any], Any]
    evaluate: Callable[[np.ndarray, np.ndarray], dict[str, float]]
    select_by: str
    epochs: int
    every: int = 1

    def inputs_of(self, rows):
        """What the model takes of some examples: a list, or one array."""
        found = [x[rows] for x in self.inputs]
        return found if len(found) > 1 else found[0]


def perceptron(width, hidden):
    """Hidden layers with ReLU, then a linear layer of one unit."""
    dense = [keras.layers.Dense(units, activation="relu") for units in hidden]
    return keras.Sequential([keras.Input([width]), *dense, keras.layers.Dense(1)])


def diabetes(data_dir):
    """scikit-learn's diabetes: the progress of an illness, from ten measurements.

    For a tenth of the task's own epochs, whatever --epochs says, the absolute error is
    added to the loss on ranks, as in the paper's domain alignment.
    """
    from sklearn.datasets import load_diabetes

    features, labels = (
        ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
        for x in load_diabetes(return_X_y=True)
    )

    def spearman(labels, outputs):
        metric = metrics.SpearmanCorrelation(max_examples=len(labels))
        metric.update_state(labels, outputs)
        return {"Spearman": float(metric.result())}

    return Task(
        inputs=[features],
        labels=labels[:, np.newaxis],
        make_model=lambda: perceptron(10, [64]),
        baselines={
            "MSE": keras.losses.MeanSquaredError(),
            "L1": keras.losses.MeanAbsoluteError(),
        },
        with_sorter=lambda sorter: losses.SpearmanLoss(
            sorter, alignment=tf.Variable(1.0)
        ),
        evaluate=spearman,
        select_by="Spearman",
        epochs=60,
        every=5,
    )


def synthetic(data_dir):
    """20,000 normal points; the fifth a random network scores highest is positive."""
    rng = np.random.default_rng(2016)
    points = rng.standard_normal((20_000, 10))
    scores = points
    for _ in range(3):
        scores = np.maximum(scores @ rng.standard_normal((10, 10)), 0)
    scores = scores @ rng.standard_normal(10)
    labels = (scores > np.quantile(scores, 0.8)).astype(np.float32)

    def cross_entropy(labels, outputs):
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, outputs))

    def average_precision(labels, outputs):
        metric = metrics.MeanAveragePrecision(1, max_examples=len(labels))
        metric.update_state(labels, outputs)
        return {"mAP": float(metric.result())}

    return Task(
        inputs=[points.astype(np.float32)],
        labels=labels[:, np.newaxis],
        make_model=lambda: perceptron(10, [32, 32]),
        baselines={"cross-entropy": cross_entropy, "HingeAP": hinge_ap},
        with_sorter=losses.MeanAveragePrecisionLoss,
        evaluate=average_precision,
        select_by="mAP",
        epochs=8,
    )


def hinge_ap(labels, outputs):
    r"""Structured hinge loss of average precision, of labels and scores `[batch, 1]`.

    $$\max_\pi \; 1 - \mathrm{AP}(\pi) + F(\pi) - F(y), \qquad
    F(\pi) = \frac{1}{P N} \sum_{i \in +, j \in -} \pm (s_i - s_j)$$

    with + where the order π has i above j.

    Source: Yue et al. 2007, "A support vector method for optimizing average precision",
    section 4.1: each negative, from the best on, finds its best place among the sorted
    positives.
    """
    scores = tf.reshape(outputs, [-1])
    order = tf.argsort(scores, direction="DESCENDING")
    scores = tf.gather(scores, order)
    is_positive = tf.gather(tf.reshape(labels, [-1]), order) > 0
    positives = tf.boolean_mask(scores, is_positive)
    negatives = tf.boolean_mask(scores, ~is_positive)
    num_positives = tf.cast(tf.size(positives), scores.dtype)
    num_negatives = tf.cast(tf.size(negatives), scores.dtype)
    pairs = tf.maximum(num_positives * num_negatives, 1)

    i = tf.range(1, num_positives + 1)[:, tf.newaxis]
    j = tf.range(1, num_negatives + 1)[tf.newaxis, :]
    margins = 2 * (positives[:, tf.newaxis] - negatives[tf.newaxis, :]) / pairs
    # The gain if negative j is above positive i, as the j - 1 negatives before it are.
    losses_of_pairs = j / (i + j) - (j - 1) / (i + j - 1)
    gains = losses_of_pairs / tf.maximum(num_positives, 1) - margins
    below = tf.cumsum(tf.stop_gradient(gains), axis=0, reverse=True)
    ending = tf.concat([below, tf.zeros_like(negatives)[tf.newaxis, :]], axis=0)
    num_above = tf.cast(tf.argmax(ending, axis=0), scores.dtype)  # Positives above j.

    above = tf.cast(i > num_above, scores.dtype)
    hits = i[:, 0] / (i[:, 0] + tf.reduce_sum(above, axis=1))
    loss = 1 - tf.math.divide_no_nan(tf.reduce_sum(hits), num_positives)
    return tf.where(num_positives > 0, loss - tf.reduce_sum(above * margins), 0)


def bag(rows, fewest):
    """float32 `[rows, words]`, rows of length 1, of words in at least so many rows."""
    from sklearn import feature_extraction, preprocessing

    count = feature_extraction.text.CountVectorizer
    counts = count(
        analyzer=lambda words: words, min_df=fewest, binary=True, dtype=np.float32
    )
    return preprocessing.normalize(counts.fit_transform(rows)).toarray()


def movielens(path):
    """The words of each film, and the users who rated it, by the film's id."""
    words = {}
    users = collections.defaultdict(list)
    with zipfile.ZipFile(path) as archive:

        def rows(name):
            member = archive.open(f"ml-latest-small/{name}.csv")
            return csv.DictReader(io.TextIOWrapper(member, "utf-8"))

        for row in rows("movies"):
            title = re.sub(r"\(\d{4}\)\s*$", "", row["title"]).lower()
            words[row["movieId"]] = [
                *(f"title {word}" for word in re.findall(r"\w+", title)),
                *(f"genre {genre}" for genre in row["genres"].split("|")),
            ]
        for row in rows("tags"):
            tags = re.findall(r"\w+", row["tag"].lower())
            words[row["movieId"]] += [f"tag {tag}" for tag in tags]
        for row in rows("ratings"):
            users[row["movieId"]].append(int(row["userId"]))
    return words, users


def retrieval(data_dir):
    """Films with at least five ratings: title, genres and tags, and their raters."""
    words, users = movielens(data_dir / "ml-latest-small.zip")
    films = [film for film in words if len(users[film]) >= 5]
    of_words = bag([words[film] for film in films], 3)
    of_users = bag([users[film] for film in films], 1)
    sides = [of_words, of_users]

    def towers():
        inputs = [keras.Input(side.shape[1:]) for side in sides]
        encodings = []
        for side in inputs:
            hidden = keras.layers.Dense(64)(side)
            encodings.append(keras.layers.UnitNormalization()(hidden))
        products = keras.layers.Lambda(lambda pair: tf.matmul(*pair, transpose_b=True))
        return keras.Model(inputs, products(encodings))

    return Task(
        inputs=sides,
        labels=np.arange(len(films), dtype=np.int32),
        make_model=towers,
        baselines={"triplet": triplet},
        with_sorter=losses.RankTripletLoss,
        evaluate=both_ways,
        select_by="mean R@10",
        epochs=20,
        every=2,
    )


def triplet(labels, outputs):
    """The hinge loss of each film's hardest negative, from both sides."""
    own = tf.linalg.diag_part(outputs)
    others = tf.linalg.set_diag(outputs, tf.fill(tf.shape(own), -2.0))
    hardest = [tf.reduce_max(others, axis=axis) for axis in (0, 1)]
    return tf.add_n([tf.reduce_mean(tf.nn.relu(0.2 + x - own)) for x in hardest])


def both_ways(labels, outputs):
    """How well each side finds the other."""
    found = evaluation.evaluate_retrieval(outputs)
    sides = {"words → raters": found["rows"], "raters → words": found["columns"]}
    mean = np.mean([of_side["hit_rate_at_10"] for of_side in sides.values()])
    figures = {"mean R@10": float(mean)}
    for side, of_side in sides.items():
        for k in (1, 5, 10):
            figures[f"R@{k}, {side}"] = float(of_side[f"hit_rate_at_{k}"])
        figures[f"median rank, {side}"] = float(of_side["median_rank"])
    return figures


TASKS = {"synthetic": synthetic, "diabetes": diabetes, "retrieval": retrieval}
