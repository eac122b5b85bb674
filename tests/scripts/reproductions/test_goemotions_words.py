"""Words held out of comments, against the raw files."""

import collections
import sys

import numpy as np
import pytest

from rank4class_tf.data import texts
from scripts.reproductions.goemotions_words import goemotions_words
from tests.data.goemotions_files import raw_comments


@pytest.fixture(scope="module")
def build(data_dir):
    """Builds splits from texts that are read once."""
    parts = texts.read(data_dir)

    def build(seed):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(texts, "read", lambda _: parts)
            return goemotions_words(data_dir, batch_size=1000, seed=seed)

    return build


@pytest.fixture(scope="module")
def splits(build):
    return build(seed=1)


def points(batches):
    """The features and the class of each example of a dataset."""
    for features, class_ids in batches:
        assert features.shape[1] == 29_538
        assert (features.values.numpy() == 1).all()
        rows, columns = features.indices.numpy().T
        starts = np.searchsorted(rows, np.arange(1, len(class_ids)))
        for own, class_id in zip(np.split(columns, starts), class_ids.numpy(), strict=True):
            yield own.tolist(), int(class_id)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "size"), [("train", 43_235), ("validation", 5_383), ("test", 5_382)]
)
def test_comments_are_those_of_the_raw_file(splits, part, size):
    index = {word.encode(): i for i, word in enumerate(splits.class_names)}
    assert index.keys() == {word for words, _ in raw_comments("train") for word in words}
    comments = ({index[word] for word in words if word in index} for words, _ in raw_comments(part))
    expected = collections.Counter(tuple(sorted(words)) for words in comments if len(words) > 1)
    got = collections.Counter()
    for features, class_id in points(getattr(splits, part)):
        assert class_id not in features
        got[tuple(sorted([*features, class_id]))] += 1
    assert got.total() == size
    assert got == expected


@pytest.mark.slow
def test_any_word_is_held_out_alike(splits):
    """Chi-squared of the place of the class among the words of the comments with six."""
    first, second = ([(sorted([*f, c]), c) for f, c in points(splits.train)] for _ in range(2))
    places = [words.index(held_out) for words, held_out in first if len(words) == 6]
    counts = np.bincount(places, minlength=6)
    mean = counts.mean()
    # 5 degrees of freedom; more in one case of a million.
    assert ((counts - mean) ** 2 / mean).sum() < 36.0
    # Each epoch has its own order and its own words.
    assert [words for words, _ in first] != [words for words, _ in second]
    assert sorted(first) != sorted(second)


@pytest.mark.slow
def test_seed_decides_on_the_training_part_alone(build):
    one, same, other = build(seed=2), build(seed=2), build(seed=3)
    assert one.class_names == other.class_names
    assert list(points(one.test)) == list(points(other.test)) == list(points(one.test))
    first = list(points(one.train))
    assert first == list(points(same.train))
    assert first != list(points(other.train))


@pytest.mark.parametrize("value", [0, 1.5])
def test_bad_batch_size(value):
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer. Received: "):
        goemotions_words(batch_size=value)


def test_bad_seed():
    with pytest.raises(ValueError, match=r"`seed` must be an integer in \[0, 2\*\*32\). Received"):
        goemotions_words(seed=-1)


def test_without_tensorflow_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"`tensorflow_datasets`: pip install -e '.\[data"):
        goemotions_words()
