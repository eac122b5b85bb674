"""ImageNet through TensorFlow Datasets, from files that are downloaded by hand."""

import os

import tensorflow as tf

from rank4class_tf.data import images, splits

_SOURCE = (
    "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar of https://image-net.org (which asks for "
    "a registration)"
)
# The side of the central square of the images is 224/256 of their shorter side.
_CENTRE = 224, 256


def imagenet2012(
    data_dir: str | os.PathLike | None = None,
    batch_size: int = 64,
    image_size: int = 224,
    augment: bool = True,
    seed: int = 0,
) -> splits.Splits:
    """Returns ImageNet (ILSVRC 2012): 1.28 million photographs in 1,000 classes.

    Features are float32 `[batch, image_size, image_size, 3]` in [0, 255], class ids int64
    `[batch]`. The labels of ImageNet's own test part are not public, so its 50,000 validation
    images are `test`, as is usual, and the last hundredth of its training images is `validation`.

    Validation and test images are cut to their centre, a square of 224/256 of the shorter side.

    Source: O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", IJCV 2015,
    through TensorFlow Datasets. The files must be downloaded from image-net.org by hand.

    Args:
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        batch_size: images per batch.
        image_size: height and width in pixels.
        augment: whether to change training images anew in each epoch: cut a random part (8 to
            100 % of the area, 3:4 to 4:3), and mirror half of them. Otherwise they are cut as the
            validation images are.
        seed: seed of the training order and of the augmentation.
    """
    tfds = splits.import_extra("tensorflow_datasets")
    parts, info = splits.load(
        "imagenet2012",
        data_dir=data_dir,
        source=_SOURCE,
        split=["train[:99%]", "train[99%:]", "validation"],
        with_info=True,
        as_supervised=True,
        # We decode after the shuffle, so that its buffer holds small files, and only the part that
        # we keep.
        decoders={"image": tfds.decode.SkipDecoding()},
    )

    def evaluate(image, _):
        return _centre(image, image_size)

    def train(image, seed):
        return _random_part(image, seed, image_size)

    return images.splits_of_images(
        parts,
        info,
        batch_size,
        seed,
        shuffled=16_384,
        train=train if augment else evaluate,
        evaluate=evaluate,
    )


def _random_part(encoded, seed, size):
    """Decodes a random part of a JPEG, and mirrors half of them."""
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(encoded),
        bounding_boxes=tf.zeros((1, 0, 4)),
        seed=seed,
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], extent[:2]], axis=0)
    part = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
    part = tf.image.stateless_random_flip_left_right(part, seed[::-1])
    return _resize(part, [size, size])


def _centre(encoded, size):
    """Decodes the central square of a JPEG, which gives the pixels of resizing first."""
    height, width, _ = tf.unstack(tf.io.extract_jpeg_shape(encoded))
    side = tf.maximum(tf.minimum(height, width) * _CENTRE[0] // _CENTRE[1], 1)
    window = tf.stack([(height - side) // 2, (width - side) // 2, side, side])
    return _resize(tf.image.decode_and_crop_jpeg(encoded, window, channels=3), [size, size])


def _resize(image, shape):
    return tf.ensure_shape(tf.image.resize(image, shape), [*shape, 3])
