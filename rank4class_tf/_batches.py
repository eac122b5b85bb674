"""The batches of a dataset, and the scores of a model for them."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from rank4class_tf.models import ExtremeClassifier, TwoTower


def batches(dataset: Any, batch_size: int) -> Iterator[Any]:
    """Batches `(features, labels)` or `(features, labels, sample_weight)`.

    `dataset` holds such batches, or is one such tuple of all examples, cut by `batch_size`.
    """
    if isinstance(dataset, tuple):
        try:
            dataset = tf.data.Dataset.from_tensor_slices(_of_tuple(dataset)).batch(batch_size)
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


def _of_tuple(dataset):
    """All examples, with a list of a model's inputs as a tuple, since TensorFlow stacks lists.

    Such a list holds arrays with a row for each label; a list of the rows of one array stays.
    """
    features, *others = dataset
    if others and isinstance(features, list) and features and hasattr(features[0], "shape"):
        size = others[0].shape[0] if hasattr(others[0], "shape") else len(others[0])
        if len(features) != size or tuple(features[0].shape[:1]) == (size,):
            features = tuple(features)
    return features, *others


def check_gives_scores(model: Any) -> None:
    """Raises for a model that is known not to give scores."""
    for kind, name in ((ExtremeClassifier, "An ExtremeClassifier"), (TwoTower, "A TwoTower")):
        if isinstance(model, kind):
            use = f"{name} gives encodings; use its `evaluate`, `ranks` or `top_k`"
            raise ValueError(f"`model` must give scores [batch, n]. {use}. Received: {model!r}.")


def scores_of(model: Any, features: Any) -> Any:
    """The scores of a Keras model, in inference, or of a function for the features of a batch."""
    return model(features, training=False) if hasattr(model, "layers") else model(features)
