"""GoEmotions: comments with one of 28 emotions, as words or as strings."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks
from rank4class_tf._types import PathLike, Tensor
from rank4class_tf.data import splits

_TEXT = "comment_text"
_SOURCE = (
    "train.tsv, dev.tsv and test.tsv of "
    "https://github.com/google-research/google-research/tree/master/goemotions/data"
)
# TFDS takes several times longer to read examples one by one than in batches.
READ_BATCH = 1024
_UNKNOWN = 1


def goemotions(
    data_dir: PathLike | None = None,
    batch_size: int = 256,
    max_tokens: int = 20_000,
    sequence_length: int = 32,
    seed: int = 0,
    text: bool = False,
    multi_label: bool = False,
) -> splits.Splits:
    """Returns the GoEmotions comments, by default the comments with exactly one of the 28 labels.

    There are 36,308 such comments for training, 4,548 for validation and 4,590 for testing, in the
    dataset's own split; of all comments 43,410, 5,426 and 5,427. Features are the int64 numbers of
    the words `[batch, sequence_length]`: 0 pads short comments, 1 is a word outside the vocabulary,
    which has only words of the training comments, and a comment without a word counts as one of
    those. Longer comments are cut. Class ids are int64 `[batch]`. For new text use
    `keras.layers.TextVectorization(vocabulary=splits.vocabulary)`.

    Source: D. Demszky et al., "GoEmotions: A Dataset of Fine-Grained Emotions", ACL 2020, through
    TensorFlow Datasets, which downloads it on first use.

    Args:
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        batch_size: examples per batch, >= 1.
        max_tokens: size of the vocabulary, including the two special numbers, >= 3.
        sequence_length: words per comment, >= 1.
        seed: seed of the training order, in [0, 2**32).
        text: whether features are the comments themselves, strings `[batch]`, without a vocabulary.
        multi_label: whether to keep all comments; class ids are then `[batch, P]`, padded with -1.
    """
    batch_size = _checks.positive_int("batch_size", batch_size)
    sequence_length = _checks.positive_int("sequence_length", sequence_length)
    if _checks.positive_int("max_tokens", max_tokens) < 3:
        raise ValueError(f"`max_tokens` must be at least 3. Received: max_tokens={max_tokens}.")
    seed = _checks.seed(seed)
    parts, class_names = read(data_dir)
    labelled = _all_labels if multi_label else _single_label
    parts = [labelled(*part) for part in parts]
    vocabulary: Iterable[str] = ()
    if not text:
        vectorize = keras.layers.TextVectorization(
            max_tokens=max_tokens, output_sequence_length=sequence_length
        )
        vectorize.adapt(tf.data.Dataset.from_tensor_slices(parts[0][0]).batch(READ_BATCH))
        parts = [(_features(vectorize, texts), class_ids) for texts, class_ids in parts]
        vocabulary = (str(token) for token in vectorize.get_vocabulary())
    return splits.from_arrays(
        *parts, batch_size=batch_size, seed=seed, class_names=class_names, vocabulary=vocabulary
    )


def read(data_dir: PathLike | None) -> tuple[list[tuple[np.ndarray, np.ndarray]], Any]:
    """Returns texts and label matrix of train, validation and test, and the labels' names."""
    parts, info = splits.load(
        "goemotions", data_dir=data_dir, source=_SOURCE, batch_size=READ_BATCH, with_info=True
    )
    class_names = [name for name in info.features if name != _TEXT]

    def arrays(part: tf.data.Dataset) -> tuple[np.ndarray, np.ndarray]:
        batches = list(part.as_numpy_iterator())
        labels = [np.stack([batch[name] for name in class_names], axis=-1) for batch in batches]
        return np.concatenate([batch[_TEXT] for batch in batches]), np.concatenate(labels)

    return [arrays(parts[name]) for name in ("train", "validation", "test")], class_names


def _features(vectorize: keras.layers.TextVectorization, texts: Tensor) -> Tensor:
    """Returns the words of each text, at least one, since a masked mean over none would be NaN."""
    tokens = vectorize(texts)
    first = tf.maximum(tokens[:, :1], _UNKNOWN)
    return tf.concat([first, tokens[:, 1:]], axis=-1)


def _single_label(texts: np.ndarray, label_matrix: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Returns the texts and the class ids of the comments with one label."""
    single = label_matrix.sum(axis=-1) == 1
    return tf.constant(texts[single]), label_matrix[single].argmax(axis=-1)


def _all_labels(texts: np.ndarray, label_matrix: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Returns the texts and the class ids of all comments, padded with -1."""
    # A stable sort of the negated labels puts those that a comment has first, in their order.
    order = np.argsort(~label_matrix, axis=-1, kind="stable")[:, : label_matrix.sum(-1).max()]
    class_ids = np.where(np.take_along_axis(label_matrix, order, axis=-1), order, -1)
    return tf.constant(texts), class_ids
