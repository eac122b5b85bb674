"""Images with classes: digits from scikit-learn, CIFAR-10 and ImageNet from TFDS."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._types import Function, PathLike, Tensor, TensorPair
from rank4class_tf.data import splits

_CIFAR_10 = "cifar-10-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html"
_IMAGENET = (
    "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar of https://image-net.org "
    "(which asks for a registration)"
)


def digits(
    batch_size: int = 64, seed: int = 0, examples_per_class: int | None = None
) -> splits.Splits:
    """Returns 1,797 real images of handwritten digits, 8 x 8 pixels, in 10 classes.

    The images come with scikit-learn, so nothing is downloaded. Features are float32
    `[batch, 64]` in [0, 1], class ids int64 `[batch]`. 60 % of the images of each class
    are for training (1,077) and 20 % each for validation and testing (360 each).

    Source: the test part of E. Alpaydin and C. Kaynak, "Optical Recognition of
    Handwritten Digits", UCI Machine Learning Repository, 1998, as
    `sklearn.datasets.load_digits` has it.

    Args:
        batch_size: examples per batch, >= 1.
        seed: seed of the split into training and validation, not of the test images,
            and of the training order, in [0, 2**32).
        examples_per_class: how many training images of each class to keep, in [1, 104];
            None: all.

    Example:
        >>> splits = digits(batch_size=32)
        >>> features, class_ids = next(iter(splits.train))
        >>> features.shape, class_ids.shape, splits.num_classes
        (TensorShape([32, 64]), TensorShape([32]), 10)
    """
    seed = _checks.seed(seed)
    datasets = splits.import_extra("sklearn.datasets", "demo")
    selection = splits.import_extra("sklearn.model_selection", "demo")
    split = selection.train_test_split
    bunch = datasets.load_digits()
    pixels = (bunch.data / 16.0).astype("float32")
    class_ids = bunch.target.astype("int64")

    # The test images do not depend on the seed.
    rest, test = split(
        np.arange(len(class_ids)), test_size=0.2, stratify=class_ids, random_state=0
    )
    train, validation = split(
        rest, test_size=0.25, stratify=class_ids[rest], random_state=seed
    )

    if examples_per_class is not None:
        num_kept = _checks.positive_int("examples_per_class", examples_per_class)
        of_train = class_ids[train]
        by_class = [train[of_train == class_id] for class_id in range(10)]
        most = min(map(len, by_class))
        rule = f"`examples_per_class` must be at most {most}."
        _checks.require(num_kept <= most, rule, f"examples_per_class={num_kept}")
        train = np.concatenate([images[:num_kept] for images in by_class])

    parts = [(pixels[part], class_ids[part]) for part in (train, validation, test)]
    class_names = map(str, bunch.target_names)
    return splits.from_arrays(parts, batch_size, seed, class_names)


def cifar10(
    data_dir: PathLike | None = None,
    batch_size: int = 64,
    augment: bool = True,
    seed: int = 0,
) -> splits.Splits:
    """Returns CIFAR-10: photographs of 32 x 32 pixels in 10 classes.

    Features are float32 `[batch, 32, 32, 3]` in [0, 255], class ids int64 `[batch]`.
    45,000 images are for training, 5,000, the last of CIFAR-10's training part, for
    validation and 10,000 for testing.

    Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images",
    2009, through TensorFlow Datasets, which downloads it on first use.

    Args:
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        batch_size: images per batch, >= 1.
        augment: whether to change training images anew in each epoch: pad them by 4
            pixels on each side, cut them to their size at a random place, and mirror
            half of them.
        seed: seed of the training order and of the augmentation, in [0, 2**32).
    """
    batch_size = _checks.positive_int("batch_size", batch_size)
    seed = _checks.seed(seed)
    images = splits.load(
        "cifar10",
        data_dir=data_dir,
        source=_CIFAR_10,
        split=["train[:90%]", "train[90%:]", "test"],
        with_info=True,
        as_supervised=True,
    )

    def as_floats(image: Tensor, _: Tensor) -> Tensor:
        return tf.cast(image, tf.float32)

    return _splits_of_images(
        *images,
        batch_size=batch_size,
        seed=seed,
        buffer_size=50_000,
        train_transform=_crop_and_mirror if augment else as_floats,
        eval_transform=as_floats,
    )


def imagenet2012(
    data_dir: PathLike | None = None,
    batch_size: int = 64,
    image_size: int = 224,
    augment: bool = True,
    seed: int = 0,
) -> splits.Splits:
    """Returns ImageNet (ILSVRC 2012): 1.28 million photographs in 1,000 classes.

    Features are float32 `[batch, image_size, image_size, 3]` in [0, 255], class ids
    int64 `[batch]`. The labels of ImageNet's own test part are not public, so its
    50,000 validation images are `test`, as is usual, and the last hundredth of its
    training images is `validation`. Both are cut to their centre, a square of 224/256
    of the shorter side.

    Source: O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge",
    IJCV 2015, through TensorFlow Datasets. The files must be downloaded from
    image-net.org by hand.

    Args:
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        batch_size: images per batch, >= 1.
        image_size: height and width in pixels, >= 1.
        augment: whether to change training images anew in each epoch: cut a random part
            (8 to 100 % of the area, 3:4 to 4:3), and mirror half of them. Otherwise as
            the others.
        seed: seed of the training order and of the augmentation, in [0, 2**32).
    """
    batch_size = _checks.positive_int("batch_size", batch_size)
    size = _checks.positive_int("image_size", image_size)
    seed = _checks.seed(seed)
    tfds = splits.import_extra("tensorflow_datasets")
    images = splits.load(
        "imagenet2012",
        data_dir=data_dir,
        source=_IMAGENET,
        split=["train[:99%]", "train[99%:]", "validation"],
        # We decode after the shuffle, so that its buffer holds small files, and only
        # the part we keep.
        decoders={"image": tfds.decode.SkipDecoding()},
        with_info=True,
        as_supervised=True,
    )
    transform = _random_part if augment else _centre
    return _splits_of_images(
        *images,
        batch_size=batch_size,
        seed=seed,
        buffer_size=16_384,
        train_transform=functools.partial(transform, size=size),
        eval_transform=functools.partial(_centre, size=size),
    )


def _splits_of_images(
    parts: Sequence[tf.data.Dataset],
    info: Any,
    *,
    batch_size: int,
    seed: int,
    buffer_size: int,
    train_transform: Function,
    eval_transform: Function,
) -> splits.Splits:
    """`Splits` of a dataset of TFDS; the transforms take an image and a seed."""
    train, validation, test = parts

    def batches(images: tf.data.Dataset, transform: Function) -> tf.data.Dataset:
        # Each image gets a seed of two numbers, others in each epoch, which follow from
        # `seed`.
        numbers = tf.data.Dataset.random(seed, rerandomize_each_iteration=True)
        examples = tf.data.Dataset.zip((images, numbers.batch(2)))

        def transformed(example: TensorPair, image_seed: Tensor) -> TensorPair:
            image, label = example
            return transform(image, image_seed), label

        examples = examples.map(transformed, num_parallel_calls=tf.data.AUTOTUNE)
        return examples.batch(batch_size).prefetch(tf.data.AUTOTUNE)

    shuffled = train.shuffle(buffer_size, seed=seed)
    return splits.Splits(
        train=batches(shuffled, train_transform),
        validation=batches(validation, eval_transform),
        test=batches(test, eval_transform),
        class_names=tuple(info.features["label"].names),
    )


def _crop_and_mirror(image: Tensor, seed: Tensor) -> Tensor:
    """Cuts an image of equal size out of the padded one; mirrors it half the time."""
    padded = tf.pad(image, [[4, 4], [4, 4], [0, 0]])
    cropped = tf.image.stateless_random_crop(padded, image.shape, seed)
    mirrored = tf.image.stateless_random_flip_left_right(cropped, seed[::-1])
    return tf.cast(mirrored, tf.float32)


def _random_part(encoded: Tensor, seed: Tensor, size: int) -> Tensor:
    """Decodes a random part of a JPEG; mirrors it with probability 1/2."""
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
    mirrored = tf.image.stateless_random_flip_left_right(part, seed[::-1])
    return _resize(mirrored, size)


def _centre(encoded: Tensor, _: Tensor, size: int) -> Tensor:
    """Decodes a JPEG's central square; resizing first would give the same pixels."""
    height, width, _ = tf.unstack(tf.io.extract_jpeg_shape(encoded))
    side = tf.maximum(tf.minimum(height, width) * 224 // 256, 1)
    top = (height - side) // 2
    left = (width - side) // 2
    window = tf.stack([top, left, side, side])
    part = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
    return _resize(part, size)


def _resize(image: Tensor, size: int) -> Tensor:
    resized = tf.image.resize(image, [size, size])
    return tf.ensure_shape(resized, [size, size, 3])
