"""Data sets in three parts: the digits, texts, articles and images."""

import collections
import itertools
import re

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from sklearn.datasets import load_digits

from rank4class_tf import data
from rank4class_tf.data import images as _images
from rank4class_tf.data import texts

from ..refused import refused


def parts_of(splits):
    return splits.train, splits.validation, splits.test


def read(dataset):
    return [
        np.concatenate(arrays)
        for arrays in zip(*dataset.as_numpy_iterator(), strict=True)
    ]


def rows(part):
    return [
        row for batch in part.as_numpy_iterator() for row in zip(*batch, strict=True)
    ]


def as_rows(features, class_ids):
    return sorted(map(tuple, np.column_stack([features, class_ids]).tolist()))


@pytest.fixture(scope="module")
def splits():
    return data.digits(batch_size=50)


def test_form_of_digits(splits):
    features, class_ids = splits.train.element_spec
    assert (features.shape.as_list(), features.dtype) == ([None, 64], "float32")
    assert (class_ids.shape.as_list(), class_ids.dtype) == ([None], "int64")
    assert splits.class_names == tuple("0123456789")
    assert splits.num_classes == 10
    assert [len(ids) for _, ids in splits.validation] == [50] * 7 + [10]


def test_parts_are_all_images_each_once_and_stratified(splits):
    parts = [read(part) for part in parts_of(splits)]
    assert [len(ids) for _, ids in parts] == [1077, 360, 360]
    images, labels = load_digits(return_X_y=True)
    together = as_rows(*map(np.concatenate, zip(*parts, strict=True)))
    assert together == as_rows((images / 16).astype("float32"), labels)
    for (_, class_ids), share in zip(parts, (0.6, 0.2, 0.2), strict=True):
        # A count is rounded once for the test part and once more for the validation
        # part.
        assert np.abs(np.bincount(class_ids) - share * np.bincount(labels)).max() < 2
    for part in (splits.validation, splits.test):  # Their order stays.
        assert_equal(read(part), read(part))


def test_training_order_is_new_each_epoch_and_follows_from_the_seed():
    first, again, other = (data.digits(seed=seed) for seed in (3, 3, 4))
    epochs, same_epochs = (
        [read(part.train) for _ in range(2)] for part in (first, again)
    )
    assert_equal(epochs, same_epochs)
    assert as_rows(*epochs[0]) == as_rows(*epochs[1])
    assert (epochs[0][0] != epochs[1][0]).any()
    assert_equal(read(first.test), read(again.test))
    assert_equal(read(first.test), read(other.test))
    assert as_rows(*read(first.validation)) != as_rows(*read(other.validation))


def test_few_examples_of_each_class_are_some_of_all():
    few = data.digits(seed=3, examples_per_class=5)
    every = data.digits(seed=3)
    features, class_ids = read(few.train)
    assert np.bincount(class_ids).tolist() == [5] * 10
    assert set(as_rows(features, class_ids)) <= set(as_rows(*read(every.train)))
    assert_equal(read(few.validation), read(every.validation))
    # 174 images of an eight are the fewest: 139 are not for testing, of these 104 for
    # training.
    assert len(read(data.digits(examples_per_class=104).train)[1]) == 1040


# Comments, in the place of what TensorFlow Datasets reads
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
def tfds():
    return pytest.importorskip("tensorflow_datasets")


@pytest.fixture
def comments(monkeypatch):
    """In the place of the files, as `read` gives them."""
    parts = []
    for part in COMMENTS.values():
        labels = np.array([np.isin(range(3), ids) for _, ids in part])
        parts.append((np.array([text.encode() for text, _ in part], object), labels))
    monkeypatch.setattr(texts, "read", lambda data_dir: (parts, NAMES))


def words(text):
    return re.findall("[a-z]+", text.lower())


def test_words_of_comments_with_one_label(comments):
    splits = data.goemotions(batch_size=2, max_tokens=6, sequence_length=LENGTH, seed=1)
    of_one_label = [text for text, ids in COMMENTS["train"] if len(ids) == 1]
    counts = collections.Counter(word for text in of_one_label for word in words(text))
    special = splits.vocabulary[:2]
    known = splits.vocabulary[2:]
    assert (
        special == ("", "[UNK]")
        and len(set(known)) == 4
        and splits.class_names == NAMES
    )
    left_out = counts.keys() - set(known)
    assert min(counts[word] for word in known) >= max(counts[word] for word in left_out)
    numbers = {word: number for number, word in enumerate(splits.vocabulary)}
    for name, part in COMMENTS.items():
        expected = []
        for text, ids in part:
            of_text = [numbers.get(word, 1) for word in words(text)[:LENGTH]] or [1]
            if len(ids) == 1:
                expected.append((of_text + [0] * (LENGTH - len(of_text)), ids[0]))
        found = [
            (tokens.tolist(), class_id)
            for tokens, class_id in rows(getattr(splits, name))
        ]
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
        assert sorted(found) == sorted(
            (t, ids) for t, ids in part if multi_label or len(ids) == 1
        )


def test_what_tensorflow_datasets_gives(tmp_path, monkeypatch, tfds):
    info = tfds.builder("goemotions", data_dir=tmp_path).info
    matrix = np.random.default_rng(0).random((5, 28)) < 0.1
    columns = zip(
        (name for name in info.features if name != "comment_text"),
        matrix.T,
        strict=True,
    )
    five = tf.data.Dataset.from_tensor_slices(
        {"comment_text": list("abcde"), **dict(columns)}
    )
    given = dict.fromkeys(COMMENTS, five.batch(2)), info
    monkeypatch.setattr(tfds, "load", lambda name, **kwargs: given)
    parts, names = texts.read(tmp_path)
    assert (names[0], names[-1]) == ("admiration", "neutral")
    for found, labels in parts:
        assert b"".join(found) == b"abcde"
        assert_array_equal(labels, matrix)


# Articles of MIND, from small files in its format
CATEGORIES = ("sports", "news", "autos")
ENTITIES = '[{"Label": "A \\"name\\"", "Type": "P", "WikidataId": "Q1"}]'


def line(number, abstract="An abstract, with \"quotes\" and 'more'."):
    fields = [f"N{number}", CATEGORIES[number % 3], "sub", f"Title {number}", abstract]
    return "\t".join([*fields, f"https://assets.msn.com/{number}.html", ENTITIES, "[]"])


def write_articles(folder, lines, encoding="utf-8"):
    folder.mkdir(exist_ok=True)
    (folder / "news.tsv").write_text("\n".join(lines) + "\n", encoding=encoding)


@pytest.fixture
def folder(tmp_path):
    """Two files with 30 articles each; ten articles are in both."""
    for name, numbers in (
        ("MINDsmall_train", range(30)),
        ("MINDsmall_dev", range(20, 50)),
    ):
        lines = (
            line(number, "" if number == 7 else f"Abstract {number}")
            for number in numbers
        )
        write_articles(tmp_path / name, lines)
    return tmp_path


def test_every_article_is_in_one_part_with_its_category(folder):
    splits = data.mind(folder, batch_size=8)
    assert splits.class_names == ("autos", "news", "sports")
    parts = [rows(part) for part in parts_of(splits)]
    assert [len(part) for part in parts] == [30, 10, 10]
    texts = [
        f"Title {n}" if n == 7 else f"Title {n} [SEP] Abstract {n}" for n in range(50)
    ]
    ids = [splits.class_names.index(CATEGORIES[n % 3]) for n in range(50)]
    found = [(text.decode(), class_id) for text, class_id in sum(parts, [])]
    assert sorted(found) == sorted(zip(texts, ids, strict=True))


def test_one_file_reads_as_its_folder_and_the_seed_decides_on_the_split(folder):
    path = folder / "MINDsmall_dev"
    by_folder = data.mind(path)
    by_file = data.mind(path / "news.tsv")
    found = [
        set(rows(splits.test))
        for splits in (by_folder, by_file, data.mind(path, seed=1))
    ]
    assert found[0] == found[1] != found[2]
    assert sum(len(rows(part)) for part in parts_of(by_file)) == 30


def test_quotes_are_text(tmp_path):
    write_articles(tmp_path, map(line, range(5)))
    splits = data.mind(str(tmp_path / "news.tsv"))
    end = b"[SEP] An abstract, with \"quotes\" and 'more'."
    assert all(
        text.endswith(end) for part in parts_of(splits) for text, _ in rows(part)
    )
    features, ids = splits.train.element_spec
    assert (features.dtype, ids.dtype) == ("string", "int64")


@pytest.mark.parametrize("name", ["", "elsewhere"])
def test_missing_files_say_where_to_get_them(tmp_path, name):
    with pytest.raises(
        FileNotFoundError, match=r"https://msnews.github.io .*Received: '.*'"
    ):
        data.mind(tmp_path / name)


def test_a_byte_order_mark_and_categories_of_several_files(tmp_path):
    for name, encoding in (("a", "utf-8"), ("b", "utf-8-sig")):
        write_articles(tmp_path / name, map(line, range(10)), encoding)
    assert sum(len(rows(part)) for part in parts_of(data.mind(tmp_path))) == 10
    write_articles(tmp_path / "b", [line(1).replace("news", "autos", 1)])
    with refused("articles of one category each. Received: 'N1' of 'news'"):
        data.mind(tmp_path)


@pytest.fixture
def mocked(tfds):
    """Eleven random examples for each part of any dataset."""
    with tfds.testing.mock_data(num_examples=11):
        yield


@pytest.mark.parametrize(
    "load, shape, classes",
    [(data.cifar10, (32, 32, 3), 10), (data.imagenet2012, (224, 224, 3), 1000)],
)
@pytest.mark.usefixtures("mocked")
def test_form_of_images(load, shape, classes):
    splits = load("data", batch_size=4)
    assert splits.num_classes == classes
    for part in parts_of(splits):
        batches = list(part.as_numpy_iterator())
        assert [len(ids) for _, ids in batches] == [4, 4, 3]
        images, class_ids = batches[0]
        assert (images.shape, images.dtype, class_ids.dtype) == (
            (4, *shape),
            "float32",
            "int64",
        )
        assert 0 <= images.min() and 100 < images.max() <= 255
        assert part.element_spec[0].shape.as_list() == [None, *shape]


@pytest.mark.usefixtures("mocked")
def test_augmentation_differs_by_epoch_and_follows_the_seed():
    options = (1, True), (1, True), (2, True), (1, False)
    splits, same, other, plain = (
        data.cifar10("data", seed=s, augment=a) for s, a in options
    )
    epochs, same_epochs = ([read(x.train) for _ in range(2)] for x in (splits, same))
    assert_equal(epochs, same_epochs)
    first = epochs[0][0]
    assert not np.array_equal(first, epochs[1][0])
    assert not np.array_equal(read(other.train)[0], first)
    # Without it, each epoch has the same images in another order.
    unchanged = [
        sorted(image.tobytes() for image in read(plain.train)[0]) for _ in range(2)
    ]
    assert unchanged[0] == unchanged[1]
    assert sorted(image.tobytes() for image in first) != unchanged[0]


@pytest.mark.usefixtures("mocked")
def test_classes_stay_with_their_images():
    """Without augmentation, training and test parts of mock data are the same pairs."""
    splits = data.cifar10("data", augment=False)
    parts = rows(splits.train), rows(splits.test)
    train, test = ({(image.tobytes(), int(i)) for image, i in part} for part in parts)
    assert train == test


def test_crop_is_a_window_of_the_padded_image(rng):
    image = rng.integers(1, 256, (32, 32, 3), dtype=np.uint8)
    padded = np.pad(image, [(4, 4), (4, 4), (0, 0)])
    crops = list(itertools.product(range(9), range(9), (1, -1)))
    windows = {
        padded[i : i + 32, j : j + 32][:, ::s].tobytes(): (i, j, s) for i, j, s in crops
    }
    seen = set()
    for number in range(200):
        cut = _images._crop_and_mirror(
            tf.constant(image), tf.constant([number, 7], tf.int64)
        )
        seen.add(windows[cut.numpy().astype("uint8").tobytes()])
    rows, columns, steps = (set(values) for values in zip(*seen, strict=True))
    assert (rows, columns, steps) == (set(range(9)), set(range(9)), {1, -1})


def ramp(width):
    """From left to right: a smooth picture, since JPEG is not exact."""
    row = np.tile(np.linspace(0, 255, width), (width // 2, 1))
    return tf.io.encode_jpeg(
        np.stack([row] * 3, -1).round().astype("uint8"), quality=100
    )


def test_centre_of_an_image():
    got = _images._centre(ramp(512), None, 56)
    # The shorter side is 256: 224 columns from the 144th on, each pixel the mean of
    # where it lies.
    places = 144 + 4 * np.arange(56) + 1.5
    assert_allclose(got[28, :, 0], places * 255 / 511, atol=1.5)
    assert got.shape == (56, 56, 3)


def test_random_part_of_an_image_is_seldom_all():
    seeds = (tf.constant([n, 3], tf.int64) for n in range(40))
    rows = [
        _images._random_part(ramp(200), seed, 32)[16, :, 0].numpy() for seed in seeds
    ]
    widths = np.array([abs(row[-1] - row[0]) for row in rows])
    assert widths.min() < 100 and widths.std() > 20
    assert 0.2 < np.mean([row[0] > row[-1] for row in rows]) < 0.8  # Mirrored.


def test_what_is_missing_says_where_to_get_it(monkeypatch, tmp_path, tfds):
    def fail(*args, **kwargs):
        raise ConnectionError("no network")

    with pytest.raises(
        FileNotFoundError, match=r"ILSVRC2012_img_val.tar of https://image-net.org"
    ):
        data.imagenet2012(str(tmp_path))
    monkeypatch.setattr(tfds, "load", fail)
    with pytest.raises(
        FileNotFoundError, match=r"cifar-10-binary.tar.gz of .* no network"
    ):
        data.cifar10(str(tmp_path))
