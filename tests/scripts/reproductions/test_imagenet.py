"""ImageNet's form, from mock data, and how its images are cut."""

import numpy as np
import pytest
import tensorflow as tf

from scripts.reproductions import imagenet

tfds = pytest.importorskip("tensorflow_datasets")


def test_form():
    with tfds.testing.mock_data(num_examples=11):
        splits = imagenet.imagenet2012("data", batch_size=4)
        assert splits.num_classes == 1000
        for part in (splits.train, splits.validation, splits.test):
            batches = list(part.as_numpy_iterator())
            assert [images.shape for images, _ in batches] == [(n, 224, 224, 3) for n in (4, 4, 3)]
            assert 100 < batches[0][0].max() <= 255


def test_centre_of_an_image():
    """A smooth picture, since JPEG is not exact: a ramp from left to right."""
    ramp = np.tile(np.linspace(0, 255, 512), (256, 1))
    encoded = tf.io.encode_jpeg(np.stack([ramp] * 3, -1).round().astype("uint8"), quality=100)
    got = imagenet._centre(encoded, 56)
    # The shorter side is 256: 224 columns from the 144th on, each pixel the mean of where it lies.
    places = 144 + 4 * np.arange(56) + 1.5
    np.testing.assert_allclose(got[28, :, 0], places * 255 / 511, atol=1.5)
    assert got.shape == (56, 56, 3)


def test_random_part_of_an_image_is_seldom_all():
    ramp = np.tile(np.linspace(0, 255, 200), (100, 1))
    encoded = tf.io.encode_jpeg(np.stack([ramp] * 3, -1).round().astype("uint8"), quality=100)
    rows = [
        imagenet._random_part(encoded, tf.constant([n, 3], tf.int64), 32)[16, :, 0].numpy()
        for n in range(40)
    ]
    widths = np.array([abs(row[-1] - row[0]) for row in rows])
    assert widths.min() < 100 and widths.std() > 20
    mirrored = np.mean([row[0] > row[-1] for row in rows])
    assert 0.2 < mirrored < 0.8


def test_missing_imagenet_says_where_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"ILSVRC2012_img_val.tar of https://image-net.org"):
        imagenet.imagenet2012(str(tmp_path))
