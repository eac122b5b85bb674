"""How frequent classes are: the argument `class_prior` and what counts it."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._types import TensorLike


def class_prior(
    labels: TensorLike | tf.data.Dataset, num_classes: int, pseudo_count: float = 1.0
) -> list[float]:
    r"""The share of each class among the labels, for `SoftmaxLoss(class_prior=...)`.

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
    counts = np.full(num_classes, _checks.non_negative_float("pseudo_count", pseudo_count))
    parts = (batch[1] for batch in labels) if isinstance(labels, tf.data.Dataset) else [labels]
    for part in parts:
        ids = part.flat_values if isinstance(part, tf.RaggedTensor) else part
        ids = np.asarray(ids)
        if ids.dtype.kind not in "iuf" or ids.dtype.kind == "f" and ids.ndim > 1:
            raise ValueError(
                "`labels` must hold class ids, not labels of all classes. "
                f"Received: {ids.dtype} of shape {ids.shape}."
            )
        ids = ids.reshape(-1)
        wrong = ids[(ids < -1) | (ids >= num_classes) | (ids != np.floor(ids))]
        if len(wrong):
            raise ValueError(
                f"`labels` must hold class ids in [0, {num_classes}), or -1 for padding. "
                f"Received: {wrong[0]!r}."
            )
        counts += np.bincount(ids[ids >= 0].astype(np.int64), minlength=num_classes)
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
    try:
        prior = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        prior = np.empty([])
    if prior.ndim != 1 or not (prior > 0).all() or not abs(prior.sum() - 1) <= 1e-3:
        raise ValueError(
            "`class_prior` must hold a number > 0 for each class, which add up to 1. "
            f"Received: {value!r}."
        )
    return prior.tolist()
