"""GoEmotions, from a few comments in the place of what TensorFlow Datasets reads."""

import collections
import re

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import data
from rank4class_tf.data import texts

NAMES = ("joy", "anger", "neutral")
COMMENTS = {
    "train": [
        ("Good, good film!", [0]),
        ("a bad, BAD day", [1]),
        ("a good day", [2]),
        ("only here, and here", [0, 2]),  # Its words are in no comment of one label.
        ("", [2]),
    ],
    "validation": [("unknown film", [2]), ("a day of many words", [1, 2]), ("?!", [0])],
    "test": [("good day", [0]), ("none", [])],
}
LENGTH = 3


@pytest.fixture
def comments(monkeypatch):
    """In the place of the files, as `read` gives them."""
    parts = [
        (
            np.array([text.encode() for text, _ in part], object),
            np.array([np.isin(range(3), ids) for _, ids in part]),
        )
        for part in COMMENTS.values()
    ]
    monkeypatch.setattr(texts, "read", lambda data_dir: (parts, NAMES))


def rows(part):
    return [row for batch in part.as_numpy_iterator() for row in zip(*batch, strict=True)]


def words(text):
    return re.findall("[a-z]+", text.lower())


def test_words_of_comments_with_one_label(comments):
    splits = data.goemotions(batch_size=2, max_tokens=6, sequence_length=LENGTH, seed=1)
    counts = collections.Counter(
        word for text, ids in COMMENTS["train"] if len(ids) == 1 for word in words(text)
    )
    special, known = splits.vocabulary[:2], splits.vocabulary[2:]
    assert special == ("", "[UNK]") and len(set(known)) == 4 and splits.class_names == NAMES
    left_out = counts.keys() - set(known)
    assert min(counts[word] for word in known) >= max(counts[word] for word in left_out)
    numbers = {word: number for number, word in enumerate(splits.vocabulary)}
    for name, part in COMMENTS.items():
        expected = []
        for text, ids in part:
            of_text = [numbers.get(word, 1) for word in words(text)[:LENGTH]] or [1]
            if len(ids) == 1:
                expected.append((of_text + [0] * (LENGTH - len(of_text)), ids[0]))
        found = [(tokens.tolist(), class_id) for tokens, class_id in rows(getattr(splits, name))]
        assert sorted(found) == sorted(expected)
    features, class_ids = splits.train.element_spec
    assert (features.shape.as_list(), features.dtype) == ([None, LENGTH], "int64")
    assert (class_ids.shape.as_list(), class_ids.dtype) == ([None], "int64")


@pytest.mark.parametrize("multi_label", [False, True])
def test_text_and_several_labels(comments, multi_label):
    splits = data.goemotions(batch_size=2, text=True, multi_label=multi_label)
    assert splits.vocabulary == ()
    for name, part in COMMENTS.items():
        found = []
        for text, ids in rows(getattr(splits, name)):
            ids = np.ravel(ids)
            here = ids[ids >= 0].tolist()
            assert ids.tolist() == here + [-1] * (len(ids) - len(here))
            found.append((text.decode(), here))
        assert sorted(found) == sorted((t, ids) for t, ids in part if multi_label or len(ids) == 1)


def test_what_tensorflow_datasets_gives(tmp_path, monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")
    info = tfds.builder("goemotions", data_dir=tmp_path).info
    matrix = np.random.default_rng(0).random((5, 28)) < 0.1
    columns = zip((name for name in info.features if name != "comment_text"), matrix.T, strict=True)
    rows = tf.data.Dataset.from_tensor_slices({"comment_text": list("abcde"), **dict(columns)})
    given = dict.fromkeys(COMMENTS, rows.batch(2)), info
    monkeypatch.setattr(tfds, "load", lambda name, **kwargs: given)
    parts, names = texts.read(tmp_path)
    assert (names[0], names[-1]) == ("admiration", "neutral")
    for found, labels in parts:
        assert b"".join(found) == b"abcde"
        np.testing.assert_array_equal(labels, matrix)
