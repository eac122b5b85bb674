"""Trains one model to find films for a user and predict how the user would rate them.

    python examples/retrieval_and_rating.py --zip ml-latest-small.zip

The archive is MovieLens's (https://grouplens.org/datasets/movielens, for research), of
any version with `ratings.csv` and `movies.csv`. Both tasks train the same towers: a
subclass of `TwoTower` adds a small network, and adds its error to the loss.
`--rating-weight 0` trains only for retrieval. The test set is the most recent tenth of
each user's ratings.

It prints (the last digits depend on the processor):

    loss: 10.0983
    recall_at_10: 0.0278
    recall_at_100: 0.1763
    rmse: 0.8798
"""

import argparse
import csv
import io
import pathlib
import zipfile

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, models


def read(path):
    """The titles; and users, films and stars of all ratings, in the order of time."""
    with zipfile.ZipFile(path) as archive:

        def rows(name):
            (member,) = (m for m in archive.namelist() if m.endswith(f"/{name}"))
            with archive.open(member) as file:
                yield from csv.DictReader(io.TextIOWrapper(file, "utf-8"))

        titles = {row["movieId"]: row["title"] for row in rows("movies.csv")}
        number = {film: i for i, film in enumerate(titles)}
        ratings = sorted(rows("ratings.csv"), key=lambda row: int(row["timestamp"]))
    user_ids = {row["userId"]: None for row in ratings}
    user_of = {user: i for i, user in enumerate(user_ids)}
    users = np.array([user_of[row["userId"]] for row in ratings])
    films = np.array([number[row["movieId"]] for row in ratings])
    return (
        list(titles.values()),
        users,
        films,
        np.array([float(row["rating"]) for row in ratings]),
    )


def tower(name, size, width):
    """An encoder of users or films by their numbers."""
    inputs = keras.layers.Input([], dtype="int32", name=name)
    return keras.Model({name: inputs}, keras.layers.Embedding(size, width)(inputs))


@keras.utils.register_keras_serializable(package="examples")
class RetrievalAndRating(models.TwoTower):
    """Two towers, and a network that predicts stars from both encodings."""

    def __init__(self, query_encoder, candidate_encoder, rating_weight=1.0, **kwargs):
        super().__init__(query_encoder, candidate_encoder, **kwargs)
        self.rating_weight = rating_weight
        width = 2 * query_encoder.output_shape[-1]
        self.rating = keras.Sequential(
            [
                keras.layers.Input([width]),
                keras.layers.Dense(64, "relu"),
                keras.layers.Dense(
                    1, bias_initializer=keras.initializers.Constant(3.5)
                ),
            ]
        )
        self.rmse = keras.metrics.RootMeanSquaredError(name="rmse")

    def extra_loss(self, queries, candidates, x, y, training):
        """The squared error of the stars."""
        stars = self.rating(tf.concat([queries, candidates], axis=1))[:, 0]
        self.rmse.update_state(y["stars"], stars)
        return self.rating_weight * tf.reduce_mean((stars - y["stars"]) ** 2)

    def get_config(self):
        """The constructor arguments."""
        return {**super().get_config(), "rating_weight": self.rating_weight}


def main(argv=None):
    """Trains and evaluates both tasks; returns the metrics."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--zip", type=pathlib.Path, required=True, help="archive of MovieLens")
    add(
        "--rating-weight",
        type=float,
        default=1.0,
        help="that of ratings (default: %(default)s)",
    )
    add(
        "--width",
        type=int,
        default=32,
        help="width of the encodings (default: %(default)s)",
    )
    add("--epochs", type=int, default=5, help="epochs (default: %(default)s)")
    add(
        "--batch-size",
        type=int,
        default=512,
        help="pairs a step (default: %(default)s)",
    )
    args = parser.parse_args(argv)

    keras.utils.set_random_seed(0)
    titles, users, films, stars = read(args.zip)
    num_users = len(set(users.tolist()))
    model = RetrievalAndRating(
        tower("user", num_users, args.width),
        tower("film", len(titles), args.width),
        rating_weight=args.rating_weight,
        candidate_id="film",
        exclude="seen",
        frequencies=layers.CandidateFrequencies(len(titles)),
        num_random=512,
        seed=0,
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        losses.SoftmaxLoss(),
        metrics=[metrics.RecallAtK([10, 100])],
    )
    model.index({"film": np.arange(len(titles))})

    counts = np.bincount(users)
    place = np.empty_like(users)  # The place of a rating among the ratings of its user.
    order = np.argsort(users, kind="stable")
    place[order] = np.concatenate([np.arange(count) for count in counts])
    test = place >= counts[users] - np.maximum(counts[users] // 10, 1)
    seen = [films[(users == user) & ~test] for user in range(num_users)]
    seen = tf.RaggedTensor.from_row_lengths(
        np.concatenate(seen), [len(row) for row in seen]
    )

    def pairs(rows):
        y = {"film": films[rows], "stars": stars[rows].astype(np.float32)}
        return {"user": users[rows]}, y

    def with_seen(x, y):
        return {**x, "seen": tf.gather(seen, x["user"]).to_tensor(-1)}, y

    model.fit(*pairs(~test), batch_size=args.batch_size, epochs=args.epochs, verbose=2)
    data = tf.data.Dataset.from_tensor_slices(pairs(test)).batch(256).map(with_seen)
    results = model.evaluate(data, return_dict=True, verbose=0)
    for name, value in results.items():
        print(f"{name}: {float(value):.4f}")
    return results


if __name__ == "__main__":
    main()
