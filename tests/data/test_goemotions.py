import collections
import csv
import sys

import numpy as np
import pytest

from rank4class_tf import data
from tests.data.goemotions_files import FILES, RAW, raw_comments

MAX_TOKENS, LENGTH = 4000, 12


@pytest.fixture(scope="module")
def build(data_dir):
    def build():
        return data.goemotions(
            data_dir, batch_size=500, max_tokens=MAX_TOKENS, sequence_length=LENGTH, seed=1
        )

    return build


@pytest.fixture(scope="module")
def splits(build):
    return build()


def read_raw(split):
    """The words and the label of the comments with one label, from the raw file."""
    return [(words, int(labels)) for words, labels in raw_comments(split) if "," not in labels]


@pytest.mark.slow
@pytest.mark.parametrize("split, size", [("train", 36308), ("validation", 4548), ("test", 4590)])
def test_examples_are_those_of_the_raw_file(splits, split, size):
    index = {token.encode(): i for i, token in enumerate(splits.vocabulary)}

    def features(words):
        known = [index.get(word, 1) for word in words[:LENGTH]] or [1]
        return known + [0] * (LENGTH - len(known))

    expected = sorted((features(words), label) for words, label in read_raw(split))
    got = sorted(
        (tokens.tolist(), class_id)
        for batch in getattr(splits, split).as_numpy_iterator()
        for tokens, class_id in zip(*batch, strict=True)
    )
    assert len(got) == size
    assert got == expected


@pytest.mark.slow
def test_vocabulary_is_the_most_frequent_words_of_the_training_split(splits):
    counts = collections.Counter(word for words, _ in read_raw("train") for word in words)
    special, words = splits.vocabulary[:2], [word.encode() for word in splits.vocabulary[2:]]
    assert special == ("", "[UNK]")
    assert len(set(words)) == MAX_TOKENS - 2
    left_out = counts.keys() - set(words)
    assert min(counts[word] for word in words) >= max(counts[word] for word in left_out)


@pytest.mark.slow
def test_form(splits):
    features, class_ids = splits.test.element_spec
    assert (features.shape.as_list(), features.dtype) == ([None, LENGTH], "int64")
    assert (class_ids.shape.as_list(), class_ids.dtype) == ([None], "int64")
    assert splits.num_classes == 28
    assert (splits.class_names[0], splits.class_names[-1]) == ("admiration", "neutral")


@pytest.mark.slow
def test_building_twice_gives_the_same(build, splits):
    again = build()
    assert again.vocabulary == splits.vocabulary
    for part in ("validation", "test"):
        batches = (getattr(one, part).as_numpy_iterator() for one in (splits, again))
        for batch, same in zip(*batches, strict=True):
            np.testing.assert_equal(batch, same)


@pytest.mark.parametrize("name", ["batch_size", "max_tokens", "sequence_length"])
@pytest.mark.parametrize("value", [0, -3, 1.5, True])
def test_bad_numbers(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer. Received: {name}="):
        data.goemotions(**{name: value})


def test_vocabulary_without_a_word():
    with pytest.raises(ValueError, match="`max_tokens` must be at least 3. Received: max_tokens=2"):
        data.goemotions(max_tokens=2)


def test_bad_seed():
    with pytest.raises(ValueError, match=r"`seed` must be an integer in \[0, 2\*\*32\). Received"):
        data.goemotions(seed=-1)


def test_without_tensorflow_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"`tensorflow_datasets`: pip install -e '.\[d"):
        data.goemotions()


def raw_pairs(split, multi_label):
    """The text and the sorted labels of each comment of a raw file."""
    with open(RAW / FILES[split], encoding="utf-8", newline="") as lines:
        # TensorFlow Datasets takes quotation marks around a whole comment for CSV's own.
        rows = csv.reader(lines, delimiter="\t")
        pairs = [(text, sorted(map(int, labels.split(",")))) for text, labels, _ in rows]
    return [pair for pair in pairs if multi_label or len(pair[1]) == 1]


@pytest.mark.slow
@pytest.mark.parametrize("multi_label", [False, True])
def test_text_and_several_labels(data_dir, multi_label):
    splits = data.goemotions(data_dir, batch_size=1000, text=True, multi_label=multi_label)
    assert splits.vocabulary == ()
    for part in ("validation", "test"):
        got = []
        for texts, ids in getattr(splits, part).as_numpy_iterator():
            ids = ids.reshape(len(texts), -1)
            for text, row in zip(texts, ids, strict=True):
                here = row[row >= 0].tolist()
                assert row.tolist() == here + [-1] * (len(row) - len(here))
                got.append((text.decode(), here))
        assert sorted(got) == sorted(raw_pairs(part, multi_label))
