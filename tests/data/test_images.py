"""Images of TensorFlow Datasets, from its mock data, and the cutting of images."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import data
from rank4class_tf.data import images as _images

tfds = pytest.importorskip("tensorflow_datasets")


@pytest.fixture
def mocked():
    """Eleven random examples for each part of any dataset."""
    with tfds.testing.mock_data(num_examples=11):
        yield


@pytest.mark.usefixtures("mocked")
def test_form():
    splits, shape = data.cifar10("data", batch_size=4), (32, 32, 3)
    assert splits.num_classes == 10
    for part in (splits.train, splits.validation, splits.test):
        batches = list(part.as_numpy_iterator())
        assert [len(ids) for _, ids in batches] == [4, 4, 3]
        images, class_ids = batches[0]
        assert (images.shape, images.dtype, class_ids.dtype) == ((4, *shape), "float32", "int64")
        assert 0 <= images.min() and 100 < images.max() <= 255
        assert part.element_spec[0].shape.as_list() == [None, *shape]


def read(splits):
    return [
        np.concatenate(arrays) for arrays in zip(*splits.train.as_numpy_iterator(), strict=True)
    ]


@pytest.mark.usefixtures("mocked")
def test_augmentation_differs_by_epoch_and_follows_the_seed():
    splits, same, other, plain = (
        data.cifar10("data", seed=seed, augment=augment)
        for seed, augment in ((1, True), (1, True), (2, True), (1, False))
    )
    (first, ids), (second, ids_2) = read(splits), read(splits)
    assert not np.array_equal(first, second)
    np.testing.assert_equal(read(same), [first, ids])
    np.testing.assert_equal(read(same), [second, ids_2])
    assert not np.array_equal(read(other)[0], first)
    # Without it, each epoch has the same images in another order.
    unchanged = [sorted(image.tobytes() for image in read(plain)[0]) for _ in range(2)]
    assert unchanged[0] == unchanged[1]
    assert sorted(image.tobytes() for image in first) != unchanged[0]


@pytest.mark.usefixtures("mocked")
def test_classes_stay_with_their_images():
    """Without augmentation, training and test parts of the mock data are the same pairs."""
    splits = data.cifar10("data", augment=False)

    def pairs(part):
        return {
            (image.tobytes(), int(class_id))
            for images, ids in part.as_numpy_iterator()
            for image, class_id in zip(images, ids, strict=True)
        }

    assert pairs(splits.train) == pairs(splits.test)


def test_crop_is_a_window_of_the_padded_image(rng):
    image = rng.integers(1, 256, (32, 32, 3), dtype=np.uint8)
    padded = np.pad(image, [(4, 4), (4, 4), (0, 0)])
    windows = {
        padded[i : i + 32, j : j + 32][:, ::step].tobytes(): (i, j, step)
        for i in range(9)
        for j in range(9)
        for step in (1, -1)
    }
    seen = set()
    for number in range(200):
        cut = _images._crop_and_mirror(tf.constant(image), tf.constant([number, 7], tf.int64))
        seen.add(windows[cut.numpy().astype("uint8").tobytes()])
    rows, columns, steps = (set(values) for values in zip(*seen, strict=True))
    assert (rows, columns, steps) == (set(range(9)), set(range(9)), {1, -1})


def test_no_connection_says_where_to_get_the_images(monkeypatch, tmp_path):
    def fail(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(tfds, "load", fail)
    with pytest.raises(FileNotFoundError, match=r"cifar-10-binary.tar.gz of .* no network"):
        data.cifar10(str(tmp_path))


def test_bad_arguments():
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer. Received: batc"):
        data.cifar10(batch_size=0)
    with pytest.raises(ValueError, match=r"`seed` must be an integer in \[0, 2\*\*32\). Received"):
        data.cifar10(seed=-1)


def test_without_tensorflow_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"`tensorflow_datasets`: pip install -e '.\[d"):
        data.cifar10()
