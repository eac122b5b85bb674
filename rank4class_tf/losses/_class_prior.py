"""How frequent classes are: the argument `class_prior` and what counts it."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._counts import count_labels
from rank4class_tf._types import TensorLike


def class_prior(
    labels: TensorLike | tf.data.Dataset, num_classes: int, pseudo_count: float = 1.0
) -> list[float]:
    r"""Returns the share of each class among the labels, for `SoftmaxLoss(class_prior=...)`.

    $$\pi_i = \frac{c_i + a}{\sum_j (c_j + a)}$$

    with $c_i$ the number of labels of class i, and the pseudo-count a.

    Args:
        labels: class ids of any shape, ragged too, padded with -1; or a dataset of
            `(features, ids)`, or of these and weights, which is read once.
        num_classes: positive integer.
        pseudo_count: a >= 0, added to each count so that a class without labels has a share.

    Returns:
        `num_classes` numbers > 0 that add up to 1.

    Raises:
        ValueError: if a label is not a class id in [0, num_classes), or a class would have the
            share 0.

    Example:
        >>> class_prior([0, 0, 1], num_classes=2, pseudo_count=0.0)
        [0.6666666666666666, 0.3333333333333333]
    """
    num_classes = _checks.positive_int("num_classes", num_classes)
    pseudo_count = _checks.non_negative_float("pseudo_count", pseudo_count)
    counts = count_labels(labels, num_classes)[0] + pseudo_count
    if not counts.all():
        raise ValueError(
            "`pseudo_count` must be > 0 where a class has no labels. "
            f"Received: pseudo_count={pseudo_count!r}, no labels of class {counts.argmin()}."
        )
    return (counts / counts.sum()).tolist()


def check_class_prior(value: Any) -> list[float] | None:
    """Raises unless `value` is None, or numbers > 0 that add up to 1; returns a list."""
    if value is None:
        return None
    return _checks.one_for_each_class(
        "class_prior",
        value,
        lambda prior: (prior > 0).all() and abs(prior.sum() - 1) <= 1e-3,
        "a number > 0 for each class, which add up to 1",
    )
