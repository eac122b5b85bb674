"""Labels of data that no scores come with: what they are, and how many a class has."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._types import Array


class Form(NamedTuple):
    """What labels `[..., width]` may be, the surest last, and their width."""

    kind: int = 0  # Labels of one class, or of another shape.
    width: int = 0


# Items ranked from 1 on (class ids would be all classes but 0), class ids, ids with
# padding, or labels that can only be relevance.
RANKINGS, IDS, PADDED_IDS, RELEVANCE = 1, 2, 3, 4


def form_of(labels: np.ndarray) -> Form:
    """The form of labels that are several numbers for each list."""
    width = labels.shape[-1]
    if width <= 1:
        return Form()
    # Class ids of a list are integers that differ, but for the padding.
    rising = np.sort(labels, axis=-1)
    is_repeated = (rising[..., 1:] == rising[..., :-1]) & (rising[..., 1:] >= 0)
    if labels.dtype.kind in "fb" or is_repeated.any():
        return Form(RELEVANCE, width)
    if (rising < 0).any():
        return Form(PADDED_IDS, width)
    is_ranking = np.all(rising == np.arange(1, width + 1))
    return Form(RANKINGS if is_ranking else IDS, width)


def is_one_hot_row(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Whether each row of labels `[batch, P]` has a label per class instead of ids."""
    width = labels.shape[1]
    if 1 < width == num_classes:
        # Losses read labels of this width as relevance. Class ids this wide have
        # padding, or each example would have all classes.
        return np.full(len(labels), form_of(labels).kind != PADDED_IDS)
    # Three or more zeros and ones would repeat an id, so they are one-hot of a wrong
    # width.
    return np.isin(labels, (0, 1)).all(axis=1) & (width > 2)


def count_labels(labels: Any, num_classes: int) -> tuple[np.ndarray, int]:
    """Counts the labels of each class, `[num_classes]` int64, and the examples."""
    # The docstring of `losses.class_prior` lists the forms of labels. A dataset is read
    # once.
    counts = np.zeros(num_classes, np.int64)
    num_examples = 0
    labels = _checks.dataset_that_ends("labels", labels)
    batches: Iterable = [labels]
    if isinstance(labels, tf.data.Dataset):
        batches = (batch[1] for batch in labels)
    for batch_labels in batches:
        is_ragged = isinstance(batch_labels, tf.RaggedTensor)
        ids = np.asarray(batch_labels.flat_values if is_ragged else batch_labels)
        num_examples += int(batch_labels.shape[0]) if is_ragged else len(ids)
        is_one_hot = ids.ndim == 2 and is_one_hot_row(ids, num_classes).any()
        if is_one_hot and ids.shape[1] == num_classes and ids.dtype.kind in "iufb":
            counts += np.count_nonzero(ids > 0, axis=0)
            continue
        are_ids = ids.dtype.kind == "f" and ids.ndim <= 1
        are_ids |= ids.dtype.kind in "iu" and not is_one_hot
        rule = "`labels` must hold class ids, not a label for each class."
        _checks.require(are_ids, rule, f"{ids.dtype} of shape {ids.shape}")
        ids = ids.reshape(-1)
        invalid = ids[(ids < -1) | (ids >= num_classes) | (ids != np.floor(ids))]
        if len(invalid):
            valid = f"class ids in [0, {num_classes}), or -1 for padding"
            raise ValueError(f"`labels` must hold {valid}. Received: {invalid[0]!r}.")
        counts += np.bincount(ids[ids >= 0].astype(np.int64), minlength=num_classes)
    return counts, num_examples


def checked_counts(counts: Array) -> np.ndarray:
    """Counts of classes or candidates, int64."""
    counts = np.asarray(counts)
    rule = "`counts` must be integers >= 0, at least one."
    is_right = counts.ndim == 1 and counts.size > 0 and counts.dtype.kind in "iuf"
    _checks.require(is_right, rule, f"shape {counts.shape}, {counts.dtype}")
    is_count = (counts >= 0) & (counts == np.floor(counts)) & (counts < 2**63)
    for invalid in counts[~is_count][:1]:
        _checks.require(False, rule, f"{invalid.item()!r} among them")
    return counts.astype(np.int64)
