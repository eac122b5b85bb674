"""Texts with their classes: comments of GoEmotions and the news articles of MIND."""

import os
import pathlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks
from rank4class_tf._types import PathLike, Tensor
from rank4class_tf.data import splits

_TEXT = "comment_text"
_GOEMOTIONS = (
    "train.tsv, dev.tsv and test.tsv of "
    "https://github.com/google-research/google-research/tree/master/goemotions/data"
)
# TFDS takes several times longer to read examples one by one than in batches.
READ_BATCH = 1024
_LINE_RULE = (
    "`path` must hold lines of 8 fields, separated by tabs: id, category, subcategory, "
    "title, abstract, URL, entities of title and abstract."
)
_MIND = "https://msnews.github.io (MINDlarge_train, MINDlarge_dev and MINDlarge_test)"


def goemotions(
    data_dir: PathLike | None = None,
    batch_size: int = 256,
    max_tokens: int = 20_000,
    sequence_length: int = 32,
    seed: int = 0,
    text: bool = False,
    multi_label: bool = False,
) -> splits.Splits:
    """Returns GoEmotions comments, by default those with exactly one of 28 labels.

    The dataset's own split has 36,308 such comments for training, 4,548 for validation
    and 4,590 for testing; of all comments 43,410, 5,426 and 5,427. Features are the
    int64 ids of the words, `[batch, sequence_length]`: 0 pads short comments, 1 is a
    word that no training comment has, or a comment without words. Longer comments are
    cut. Class ids are int64 `[batch]`. For new text use
    `keras.layers.TextVectorization(vocabulary=splits.vocabulary)`.

    Source: D. Demszky et al., "GoEmotions: A Dataset of Fine-Grained Emotions", ACL
    2020, through TensorFlow Datasets, which downloads it on first use.

    Args:
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        batch_size: examples per batch, >= 1.
        max_tokens: size of the vocabulary, including the two special ids, >= 3.
        sequence_length: words per comment, >= 1.
        seed: seed of the training order, in [0, 2**32).
        text: whether features are the comments themselves, strings `[batch]`, without a
            vocabulary.
        multi_label: whether to keep all comments; class ids are then `[batch, P]`,
            padded with -1.
    """
    batch_size = _checks.positive_int("batch_size", batch_size)
    sequence_length = _checks.positive_int("sequence_length", sequence_length)
    if _checks.positive_int("max_tokens", max_tokens) < 3:
        raise ValueError(
            f"`max_tokens` must be at least 3. Received: max_tokens={max_tokens}."
        )
    seed = _checks.seed(seed)
    parts, class_names = read(data_dir)

    def with_class_ids(
        texts: np.ndarray, label_matrix: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        if not multi_label:
            is_kept = label_matrix.sum(axis=-1) == 1
            return tf.constant(texts[is_kept]), label_matrix[is_kept].argmax(axis=-1)
        # A stable sort of the negated labels puts those that a comment has first, in
        # their order.
        order = np.argsort(~label_matrix, axis=-1, kind="stable")
        order = order[:, : label_matrix.sum(-1).max()]
        is_label = np.take_along_axis(label_matrix, order, axis=-1)
        return tf.constant(texts), np.where(is_label, order, -1)

    parts = [with_class_ids(*part) for part in parts]
    vocabulary: Iterable[str] = ()
    if not text:
        # The vocabulary must have only words of the training comments.
        vectorizer = keras.layers.TextVectorization(
            max_tokens=max_tokens, output_sequence_length=sequence_length
        )
        train_texts = tf.data.Dataset.from_tensor_slices(parts[0][0])
        vectorizer.adapt(train_texts.batch(READ_BATCH))

        def tokens_of(texts: Tensor) -> Tensor:
            # Each text has at least one word, unknown (1) or not: a masked mean over
            # none would be NaN.
            tokens = vectorizer(texts)
            return tf.concat([tf.maximum(tokens[:, :1], 1), tokens[:, 1:]], axis=-1)

        parts = [(tokens_of(texts), class_ids) for texts, class_ids in parts]
        vocabulary = (str(token) for token in vectorizer.get_vocabulary())
    return splits.from_arrays(parts, batch_size, seed, class_names, vocabulary)


def read(
    data_dir: PathLike | None,
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[str]]:
    """Returns texts and label matrix of train, validation and test, and label names."""
    parts, info = splits.load(
        "goemotions",
        data_dir=data_dir,
        source=_GOEMOTIONS,
        batch_size=READ_BATCH,
        with_info=True,
    )
    class_names = [name for name in info.features if name != _TEXT]

    def arrays(part: tf.data.Dataset) -> tuple[np.ndarray, np.ndarray]:
        texts = []
        labels = []
        for batch in part.as_numpy_iterator():
            texts.append(batch[_TEXT])
            labels.append(np.stack([batch[name] for name in class_names], axis=-1))
        return np.concatenate(texts), np.concatenate(labels)

    names = ("train", "validation", "test")
    return [arrays(parts[name]) for name in names], class_names


def mind(path: PathLike, batch_size: int = 32, seed: int = 0) -> splits.Splits:
    """Returns MIND news articles as text; their categories, in order, are the classes.

    Features are strings `[batch]`, the title and the abstract with `" [SEP] "` between
    them, or only the title if the article has no abstract; class ids are int64
    `[batch]`. MIND splits its readers and not its articles, so we split the articles at
    random: 60 % for training and 20 % each for validation and testing. An article that
    is in several files counts once.

    Source: F. Wu et al., "MIND: A Large-scale Dataset for News Recommendation", ACL
    2020. The files must be downloaded by hand, from https://msnews.github.io.

    Args:
        path: a `news.tsv`, or a folder, in which all files of this name are read, at
            any depth.
        batch_size: articles per batch, >= 1.
        seed: seed of the split and of the training order, in [0, 2**32).
    """
    batch_size = _checks.positive_int("batch_size", batch_size)
    seed = _checks.seed(seed)
    path = pathlib.Path(path)
    files = [path] if path.is_file() else sorted(path.rglob("news.tsv"))
    if not files:
        raise FileNotFoundError(
            "`path` must be a news.tsv of MIND or a folder with such files, which "
            f"come from {_MIND}. Received: {os.fspath(path)!r}."
        )
    articles: dict[str, tuple[str, str]] = {}
    for file in files:
        for news_id, article in _articles(file).items():
            category = articles.setdefault(news_id, article)[0]
            received = (
                f"{news_id!r} of {category!r} and of {article[0]!r}, in {str(file)!r}"
            )
            rule = "`path` must hold articles of one category each."
            _checks.require(category == article[0], rule, received)
    received = f"{os.fspath(path)!r}, which has none"
    _checks.require(bool(articles), "`path` must hold articles.", received)
    # Sorted by id, so that the split does not depend on the order of files and lines.
    rows = [articles[news_id] for news_id in sorted(articles)]
    texts = np.array([text.encode() for _, text in rows], dtype=object)
    names = [category for category, _ in rows]
    categories, class_ids = np.unique(names, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(rows))
    ends = [round(0.6 * len(rows)), round(0.8 * len(rows))]
    parts = [(texts[part], class_ids[part]) for part in np.split(order, ends)]
    return splits.from_arrays(parts, batch_size, seed, categories.tolist())


def _articles(file: pathlib.Path) -> dict[str, tuple[str, str]]:
    """The category and the text of each article of a file, by its id."""
    articles = {}
    with splits.opened(file, newline="\n") as lines:
        for line_number, line in enumerate(lines, 1):
            fields = line.rstrip("\r\n").split("\t")
            where = f"in line {line_number} of {str(file)!r}"
            _checks.require(len(fields) == 8, _LINE_RULE, f"{len(fields)} {where}")
            news_id, category, _, title, abstract, *_ = fields
            is_right = news_id and category and news_id not in articles
            rule = (
                "`path` must hold articles with a category, and each id once in a file."
            )
            _checks.require(is_right, rule, f"{news_id!r} of {category!r} {where}")
            text = " [SEP] ".join(filter(None, (title, abstract)))
            articles[news_id] = category, text
    return articles
