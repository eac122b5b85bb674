"""Words of comments on Reddit, to be predicted from the other words of the comment."""

import itertools
import os

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks
from rank4class_tf.data import extreme, splits
from rank4class_tf.data import texts as _texts

# The first numbers of a vocabulary stand for no word and for an unknown word.
_SPECIAL = 2


def goemotions_words(
    data_dir: str | os.PathLike | None = None, batch_size: int = 256, seed: int = 0
) -> splits.Splits:
    """Returns the GoEmotions comments with one word of each held out, to be predicted.

    The classes are the 29,538 words of the training comments. So are the features: 1 for each
    distinct word of the comment except the one held out. A word has the same number as a class and
    as a feature. Other words are dropped, and so are comments with fewer than two words. This
    leaves 43,235 comments for training, 5,383 for validation and 5,382 for testing, in the
    dataset's own split. In training, the word is drawn uniformly from the comment's distinct words,
    anew each epoch; in the other parts it is always the same.

    Source: D. Demszky et al., "GoEmotions: A Dataset of Fine-Grained Emotions", ACL 2020, by
    TensorFlow Datasets, which downloads it on first use.

    Args:
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        batch_size: examples per batch, >= 1.
        seed: seed of the training order and of the words held out in training, in [0, 2**32).

    Returns:
        `Splits` with batches like those of `extreme_classification`: float32 `tf.SparseTensor`
        `[batch, words]` and int64 class ids `[batch]`. `class_names` holds the words.

    Raises:
        ImportError: without tensorflow-datasets.
        ValueError: if a number is out of range.

    Example:
        >>> splits = goemotions_words(data_dir="data")  # doctest: +SKIP
        >>> features, class_ids = next(iter(splits.train))  # doctest: +SKIP
    """
    batch_size = _checks.positive_int("batch_size", batch_size)
    seed = _checks.seed(seed)
    parts, _ = _texts.read(data_dir)
    texts = [tf.constant(part[0]) for part in parts]
    vectorize = keras.layers.TextVectorization()
    vectorize.adapt(tf.data.Dataset.from_tensor_slices(texts[0]).batch(_texts.READ_BATCH))
    words = vectorize.get_vocabulary()[_SPECIAL:]
    train, validation, test = (_comments(vectorize(part).numpy()) for part in texts)
    epochs = itertools.count()

    def training_points():
        rng = np.random.default_rng([seed, next(epochs)])
        return _held_out((train[index] for index in rng.permutation(len(train))), rng)

    def batches(points, comments):
        return extreme.batches(points, len(words), batch_size, len(comments), one_label=True)

    def fixed(comments):
        return batches(lambda: _held_out(comments, np.random.default_rng(0)), comments)

    return splits.Splits(
        train=batches(training_points, train),
        validation=fixed(validation),
        test=fixed(test),
        class_names=tuple(str(word) for word in words),
    )


def _comments(tokens):
    """The distinct words of each comment that has at least two."""
    rows = (np.unique(row[row >= _SPECIAL]) - _SPECIAL for row in tokens)
    return [words for words in rows if len(words) > 1]


def _held_out(comments, rng):
    """Points whose label is one word of the comment, and whose features are the others."""
    for words in comments:
        index = rng.integers(len(words))
        yield words[index : index + 1], np.delete(words, index), np.ones(len(words) - 1)
