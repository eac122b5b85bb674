"""The batches of a dataset, and the scores of a model for them."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from rank4class_tf.models import ExtremeClassifier, TwoTower


def batches(dataset: Any, batch_size: int) -> Iterator[Any]:
    """The batches of a dataset, or of a tuple of all examples.

    Args:
        dataset: batches `(features, labels)` or `(features, labels, sample_weight)`, such as a
            `tf.data.Dataset`; or one such tuple of all examples.
        batch_size: examples per batch of a tuple.
    """
    if isinstance(dataset, tuple):
        dataset = _lists_as_tuples(dataset)
        try:
            dataset = tf.data.Dataset.from_tensor_slices(dataset).batch(batch_size)
        except ValueError as error:
            raise ValueError(
                "`dataset` must have as many labels as features, and weights if it has any. "
                f"Received: {error}."
            ) from error
    for batch in dataset:
        if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
            raise ValueError(
                "`dataset` must be `(features, labels)` or `(features, labels, sample_weight)`, or "
                f"give batches of this form. Received: {type(batch).__name__}."
            )
        yield batch


def _lists_as_tuples(dataset):
    """The parts, with lists of arrays turned into tuples, since TensorFlow would stack lists.

    Keras's models of several inputs take such lists. A list of the rows of one array stays a list.
    We tell it by its length, which is that of another part, while its rows have another length.
    """
    parts = list(dataset)
    for i, part in enumerate(dataset):
        if isinstance(part, list) and part and _num_rows(part[0]):
            others = set().union(*map(_num_rows, [*dataset[:i], *dataset[i + 1 :]]))
            if len(part) not in others or _num_rows(part[0]) & others:
                parts[i] = tuple(part)
    return tuple(parts)


def _num_rows(part):
    """How many rows a part may have: a list of arrays has its own length, or that of an array."""
    if hasattr(part, "shape"):
        return {part.shape[0]} if len(part.shape) else set()
    if isinstance(part, dict):
        return set().union(*map(_num_rows, part.values()))
    if isinstance(part, tuple):
        return set().union(*map(_num_rows, part))
    if isinstance(part, list):
        return {len(part)}.union(*map(_num_rows, part[:1]))
    return set()


def check_gives_scores(model: Any) -> None:
    """Raises for a model that is known not to give scores."""
    for kind, name in ((ExtremeClassifier, "An ExtremeClassifier"), (TwoTower, "A TwoTower")):
        if isinstance(model, kind):
            raise ValueError(
                f"`model` must give scores [batch, n]. {name} gives encodings; use its "
                f"`evaluate`, `ranks` or `top_k`. Received: {model!r}."
            )


def scores_of(model: Any, features: Any) -> Any:
    """The scores of a Keras model, in inference, or of a function for the features of a batch."""
    return model(features, training=False) if hasattr(model, "layers") else model(features)
