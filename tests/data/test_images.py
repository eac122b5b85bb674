"""Images of TensorFlow Datasets, from its mock data, and the cutting of images."""

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


@pytest.mark.parametrize(
    ("load", "shape", "classes"),
    [(data.cifar10, (32, 32, 3), 10), (data.imagenet2012, (224, 224, 3), 1000)],
)
@pytest.mark.usefixtures("mocked")
def test_form(load, shape, classes):
    splits = load("data", batch_size=4)
    assert splits.num_classes == classes
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
    train, test = (
        {
            (image.tobytes(), int(class_id))
            for images, ids in part.as_numpy_iterator()
            for image, class_id in zip(images, ids, strict=True)
        }
        for part in (splits.train, splits.test)
    )
    assert train == test


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


def ramp(width):
    """From left to right: a smooth picture, since JPEG is not exact."""
    row = np.tile(np.linspace(0, 255, width), (width // 2, 1))
    return tf.io.encode_jpeg(np.stack([row] * 3, -1).round().astype("uint8"), quality=100)


def test_centre_of_an_image():
    got = _images._centre(ramp(512), 56)
    # The shorter side is 256: 224 columns from the 144th on, each pixel the mean of where it lies.
    places = 144 + 4 * np.arange(56) + 1.5
    np.testing.assert_allclose(got[28, :, 0], places * 255 / 511, atol=1.5)
    assert got.shape == (56, 56, 3)


def test_random_part_of_an_image_is_seldom_all():
    seeds = (tf.constant([n, 3], tf.int64) for n in range(40))
    rows = [_images._random_part(ramp(200), seed, 32)[16, :, 0].numpy() for seed in seeds]
    widths = np.array([abs(row[-1] - row[0]) for row in rows])
    assert widths.min() < 100 and widths.std() > 20
    assert 0.2 < np.mean([row[0] > row[-1] for row in rows]) < 0.8  # Mirrored.


def test_what_is_missing_says_where_to_get_it(monkeypatch, tmp_path):
    def fail(*args, **kwargs):
        raise ConnectionError("no network")

    with pytest.raises(FileNotFoundError, match=r"ILSVRC2012_img_val.tar of https://image-net.org"):
        data.imagenet2012(str(tmp_path))
    monkeypatch.setattr(tfds, "load", fail)
    with pytest.raises(FileNotFoundError, match=r"cifar-10-binary.tar.gz of .* no network"):
        data.cifar10(str(tmp_path))
