"""Handwritten digits of scikit-learn."""

import numpy as np

from rank4class_tf import _checks
from rank4class_tf.data import _splits

_MAX_PIXEL = 16.0


def digits(
    batch_size: int = 64, seed: int = 0, examples_per_class: int | None = None
) -> _splits.Splits:
    """Returns 1,797 real images of handwritten digits, 8 x 8 pixels, in 10 classes.

    The images come with scikit-learn, so nothing is downloaded. Features are float32 `[batch, 64]`
    in [0, 1], class ids int64 `[batch]`. 60 % of the images of each class are for training (1,077)
    and 20 % each for validation and testing (360 each). Every seed gives the same test images.

    Source: the test part of E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits",
    UCI Machine Learning Repository, 1998, as `sklearn.datasets.load_digits` has it.

    Args:
        batch_size: examples per batch, >= 1.
        seed: seed of the split into training and validation, and of the training order, in
            [0, 2**32).
        examples_per_class: how many training images of each class to keep, at most 104; None keeps
            all.

    Returns:
        `Splits`.

    Raises:
        ImportError: without scikit-learn.
        ValueError: if a number is out of range.

    Example:
        >>> splits = digits(batch_size=32)
        >>> features, class_ids = next(iter(splits.train))
        >>> features.shape, class_ids.shape, splits.num_classes
        (TensorShape([32, 64]), TensorShape([32]), 10)
    """
    seed = _checks.seed(seed)
    bunch = _splits.import_extra("sklearn.datasets").load_digits()
    split = _splits.import_extra("sklearn.model_selection").train_test_split
    pixels = (bunch.data / _MAX_PIXEL).astype("float32")
    class_ids = bunch.target.astype("int64")

    def two_parts(indices, size, seed):
        return split(indices, test_size=size, stratify=class_ids[indices], random_state=seed)

    rest, test = two_parts(np.arange(len(class_ids)), 0.2, 0)
    train, validation = two_parts(rest, 0.25, seed)
    if examples_per_class is not None:
        number = _checks.positive_int("examples_per_class", examples_per_class)
        of_classes = [train[class_ids[train] == class_id] for class_id in range(10)]
        most = min(map(len, of_classes))
        if number > most:
            raise ValueError(
                f"`examples_per_class` must be at most {most}. "
                f"Received: examples_per_class={examples_per_class!r}."
            )
        train = np.concatenate([of_class[:number] for of_class in of_classes])
    return _splits.from_arrays(
        *((pixels[part], class_ids[part]) for part in (train, validation, test)),
        batch_size=batch_size,
        seed=seed,
        class_names=(str(name) for name in bunch.target_names),
    )
