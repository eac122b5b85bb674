"""The batches of a dataset, and the scores of a model for them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks
from rank4class_tf.models.base import RetrievalModel

# Batches `(features, labels)` or `(features, labels, sample_weight)`; or one such tuple of all.
Dataset: TypeAlias = Iterable[tuple] | tuple
# What gives scores; None stands for scores in place of the features.
Scorer: TypeAlias = keras.Model | Callable[[Any], Any] | None


def batches(dataset: Dataset, batch_size: int) -> Iterator[tuple | list]:
    """The batches of a dataset; a tuple of all examples is cut by `batch_size`."""
    if isinstance(dataset, tuple):
        try:
            dataset = tf.data.Dataset.from_tensor_slices(inputs_as_tuple(dataset)).batch(batch_size)
        except ValueError as error:
            rule = "`dataset` must have as many labels as features, and weights if it has any."
            raise ValueError(f"{rule} Received: {error}.") from error
    for batch in dataset:
        form = "`(features, labels)` or `(features, labels, sample_weight)`"
        rule = f"`dataset` must be {form}, or give batches of this form."
        is_right = isinstance(batch, tuple | list) and len(batch) in (2, 3)
        _checks.require(is_right, rule, type(batch).__name__)
        yield batch


def inputs_as_tuple(dataset: tuple) -> tuple:
    """All examples, with a list of a model's inputs as a tuple, since TensorFlow stacks lists."""
    # Such a list holds arrays with a row for each label. A list of the rows of one array stays.
    features, *others = dataset
    if others and isinstance(features, list) and features and hasattr(features[0], "shape"):
        size = others[0].shape[0] if hasattr(others[0], "shape") else len(others[0])
        if len(features) != size or tuple(features[0].shape[:1]) == (size,):
            features = tuple(features)
    return features, *others


def check_gives_scores(model: Scorer) -> None:
    """Raises for a model that is known not to give scores."""
    rule = f"`model` must give scores [batch, n]. {type(model).__name__} gives encodings; use its"
    rule += " `evaluate`, `ranks` or `top_k`."
    _checks.require(not isinstance(model, RetrievalModel), rule, model)


def scores_of(model: Scorer, features: Any, logits: bool = False) -> Any:
    """The scores of a Keras model, in inference, or a function; without one, the features."""
    # If they must be `logits`, probabilities raise, where the graph shows them.
    check_gives_scores(model)
    rule = "`model` must be a model, a function, or None for scores in place of features."
    _checks.require(model is None or callable(model), rule, type(model).__name__)
    # A function or a `tf.Module` may not take `training`; what has layers is a Keras model.
    training = {"training": False} if hasattr(model, "layers") else {}
    scores = features if model is None else model(features, **training)
    if logits:
        _checks.no_probabilities("model", _checks.function_behind(scores))
    return one_output("`model` must give the scores [batch, n]", scores)


def one_output(rule: str, values: Any) -> Any:
    """Scores or labels; raises for those of several outputs of a model."""
    several = isinstance(values, list | tuple) and any(map(tf.is_tensor, values))
    if several or isinstance(values, dict):
        key = next(iter(values)) if isinstance(values, dict) else 0
        which = f"`lambda x: model(x)[{key!r}]`, `dataset.map(lambda x, y: (x, y[{key!r}]))`"
        raise ValueError(f"{rule} of one output: {which}. Received: {len(values)} of them.")
    return values
