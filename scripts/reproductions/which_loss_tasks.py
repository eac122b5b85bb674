"""Two tasks of which_loss.py with several labels: films for users, concepts for glosses."""

import dataclasses
import functools
import os

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import data, layers
from scripts.reproductions import harness
from scripts.reproductions import wordnet as _wordnet

# Films with at least so many ratings, and concepts above at least so many training glosses.
FEWEST_RATINGS = 5
FEWEST_GLOSSES = 100
# An example predicts this many films of a user from the other films.
TARGETS = 10
WIDTH = 128
DROPOUT = 0.5
_MASKED = -1.0


def movielens(data_dir):
    """Films of a user from the user's other films (ml-latest-small, random 80/10/10 split).

    A training example predicts up to ten of a user's training films, with the user's other training
    films as features. The other parts of the split are predicted from the parts before them. Films
    among the features are masked.
    """
    users = data.movielens("latest-small", data_dir, seed=0)
    read = users.train.merge_dims(0, 1).numpy()
    films = np.flatnonzero(np.bincount(read, minlength=users.num_items) >= FEWEST_RATINGS)
    number = np.full(users.num_items, -1)
    number[films] = np.arange(len(films))

    def lists(ragged):
        return [kept[kept >= 0] for kept in (number[row] for row in ragged.to_list())]

    train, validation, test = map(lists, (users.train, users.validation, users.test))
    before_test = [np.concatenate(pair) for pair in zip(train, validation, strict=True)]

    def parts_of_ten(rng):
        """Groups of each user's films to predict, with the user's other films as features."""
        for row in train:
            order = rng.permutation(row)
            for start in range(0, len(order), TARGETS):
                targets = order[start : start + TARGETS]
                rest = np.setdiff1d(row, targets)
                if len(rest):
                    yield rest, targets

    def batches(pairs, batch_size):
        def arrays():
            found = pairs()
            for start in range(0, len(found), batch_size):
                part = found[start : start + batch_size]
                features = np.zeros((len(part), len(films)), np.float32)
                relevance = np.zeros_like(features)
                for i, (rest, targets) in enumerate(part):
                    features[i, rest] = 1 / np.sqrt(len(rest))
                    relevance[i, rest] = _MASKED
                    relevance[i, targets] = 1
                yield features, relevance

        spec = tf.TensorSpec((None, len(films)), tf.float32)
        return tf.data.Dataset.from_generator(arrays, output_signature=(spec, spec)).prefetch(2)

    def load(batch_size, seed):
        rng = np.random.default_rng(seed)

        def in_new_order():
            found = list(parts_of_ten(rng))
            return [found[i] for i in rng.permutation(len(found))]

        return data.Splits(
            batches(in_new_order, batch_size),
            batches(lambda: _with_targets(train, validation), batch_size),
            batches(lambda: _with_targets(before_test, test), batch_size),
            tuple(map(str, users.item_ids[films])),
        )

    return harness.Problem(
        {"dataset": "movielens", "encoder": "autoencoder"},
        load,
        lambda splits: [keras.layers.Dropout(DROPOUT), keras.layers.Dense(WIDTH, "relu")],
        harness.Settings(epochs=12, batch_size=128, learning_rate=1e-3),
    )


def _with_targets(features, targets):
    """The pairs of users who have both."""
    return [pair for pair in zip(features, targets, strict=True) if len(pair[0]) and len(pair[1])]


def wordnet(path):
    """Concepts above a concept from the words of its gloss, for concepts with many glosses.

    Glosses without such a concept have no positive class and count for nothing.
    """

    @functools.cache
    def read(batch_size):
        splits = _wordnet.wordnet(path, batch_size)
        counts = np.zeros(splits.num_classes, int)
        for class_ids in splits.train.map(lambda _, class_ids: class_ids).as_numpy_iterator():
            counts += np.bincount(class_ids[class_ids >= 0], minlength=len(counts))
        classes = np.flatnonzero(counts >= FEWEST_GLOSSES)
        # The last entry is for the padding, -1.
        number = np.full(splits.num_classes + 1, -1)
        number[classes] = np.arange(len(classes))
        table = tf.constant(number)

        def of_many_glosses(features, class_ids):
            ids = tf.gather(table, class_ids % len(number))
            return features, tf.reduce_max(tf.one_hot(ids, len(classes)), axis=1)

        parts = {
            name: getattr(splits, name).map(of_many_glosses)
            for name in ("train", "validation", "test")
        }
        names = tuple(splits.class_names[i] for i in classes)
        chosen = dataclasses.replace(splits, class_names=names, **parts)
        return harness.in_random_order(chosen)

    def load(batch_size, seed):
        return read(batch_size)(seed)

    def network(splits):
        return [
            keras.layers.Input((len(splits.vocabulary),), sparse=True),
            layers.SparseDense(WIDTH),
            keras.layers.Activation("relu"),
            keras.layers.Dropout(DROPOUT),
        ]

    return harness.Problem(
        {"dataset": "wordnet", "encoder": "dense_layer", "wordnet_dir": os.path.realpath(path)},
        load,
        network,
        harness.Settings(epochs=6, batch_size=1024, learning_rate=1e-3),
    )
