"""What a model gives for a dataset, batch by batch."""

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
        # Keras's models of several inputs take lists of arrays; TensorFlow would stack them.
        if dataset and isinstance(dataset[0], list) and _are_inputs(dataset):
            dataset = (tuple(dataset[0]), *dataset[1:])
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


def _are_inputs(dataset):
    """Whether a list of features holds arrays of all examples, and not the rows of one."""
    features, *others = dataset
    sizes = {_num_rows(part) for part in others} - {None}
    arrays = all(hasattr(part, "shape") and _num_rows(part) in sizes for part in features)
    return bool(features) and arrays and len(features) not in sizes


def _num_rows(part):
    """None for what has no rows."""
    if hasattr(part, "shape"):
        return part.shape[0] if len(part.shape) else None
    return len(part) if isinstance(part, list | tuple) else None


def check_gives_scores(model: Any) -> None:
    """Raises for a model that is known not to give scores."""
    for kind, name in ((ExtremeClassifier, "An ExtremeClassifier"), (TwoTower, "A TwoTower")):
        if isinstance(model, kind):
            raise ValueError(
                f"`model` must give scores [batch, n]. {name} gives encodings; use its "
                f"`evaluate`, `ranks` or `top_k`. Received: {model!r}."
            )


def scores_of(model: Any, features: Any) -> Any:
    """What a Keras model in inference, or a function, gives for the features of a batch."""
    return model(features, training=False) if hasattr(model, "layers") else model(features)
