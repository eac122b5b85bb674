"""The batches of a dataset, and the scores of a model for them."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf.models.base import RetrievalModel

# Batches `(features, labels)` or `(features, labels, sample_weight)`, or one with all
# examples.
Dataset: TypeAlias = Iterable[tuple] | tuple
# A model or a function that gives scores; None where the features are the scores.
Scorer: TypeAlias = keras.Model | Callable[[Any], Any] | None


def batches(
    dataset: Dataset, batch_size: int, name: str = "dataset"
) -> Iterator[tuple | list]:
    """The batches of the argument `name`; `batch_size` cuts a tuple of all examples."""
    if isinstance(dataset, tuple):
        try:
            examples = tf.data.Dataset.from_tensor_slices(as_tensors(dataset))
        except ValueError as error:
            rule = (
                f"`{name}` must have as many labels as features, and weights if it "
                "has any, in arrays of numbers or of strings."
            )
            raise ValueError(f"{rule} Received: {error}.") from error
        dataset = examples.batch(batch_size)
    for batch in _checks.dataset_that_ends(name, dataset):
        form = "`(features, labels)` or `(features, labels, sample_weight)`"
        rule = f"`{name}` must be {form}, or give batches of this form."
        is_right = isinstance(batch, tuple | list) and len(batch) in (2, 3)
        _checks.require(is_right, rule, type(batch).__name__)
        yield batch


def as_tensors(dataset: tuple) -> tuple:
    """All examples, in forms of which TensorFlow can take rows."""
    features, *targets = dataset
    # A list of a model's inputs, which have a row for each label, becomes a tuple,
    # since TensorFlow stacks lists, such as a list of the rows of one array.
    is_list = isinstance(features, list) and bool(features)
    if targets and is_list and hasattr(features[0], "shape"):
        labels = targets[0]
        count = labels.shape[0] if hasattr(labels, "shape") else len(labels)
        has_rows = tuple(features[0].shape[:1]) == (count,)
        if has_rows or len(features) != count:
            features = tuple(features)
    if isinstance(features, dict):
        features = {key: _as_tensor(x) for key, x in features.items()}
    elif isinstance(features, tuple):
        features = tuple(map(_as_tensor, features))
    return _as_tensor(features), *map(_as_tensor, targets)


def _as_tensor(x: Any) -> Any:
    """SciPy sparse matrices as sparse tensors, lists as tensors, pandas as arrays."""
    if hasattr(x, "tocoo"):  # In the order of rows, as TensorFlow wants it.
        entries = x.tocsr().sorted_indices().tocoo()
        indices = np.column_stack([entries.row, entries.col]).astype(np.int64)
        return tf.SparseTensor(indices, entries.data, entries.shape)
    if not hasattr(x, "to_numpy"):
        return tf.convert_to_tensor(x) if isinstance(x, list) else x
    values = x.to_numpy()
    # Of pandas, for booleans beside numbers.
    if values.dtype == object and values.ndim == 2:
        numbers = np.array(values.tolist())
        values = numbers if numbers.dtype.kind in "biuf" else values
    return values


def check_gives_scores(model: Scorer) -> None:
    """Raises for a model that is known not to give scores."""
    rule = (
        f"`model` must give scores [batch, n]. {type(model).__name__} gives "
        "encodings; use its `evaluate`, `ranks` or `top_k`."
    )
    _checks.require(not isinstance(model, RetrievalModel), rule, model)


def scores_of(model: Scorer, features: Any, logits: bool = False) -> Any:
    """The scores of a Keras model in inference, or of a function; if None, features."""
    check_gives_scores(model)
    rule = (
        "`model` must be a model, a function, or None for scores in place of features."
    )
    _checks.require(model is None or callable(model), rule, type(model).__name__)
    # A function or a `tf.Module` may not take `training`; what has layers is a Keras
    # model.
    options = {"training": False} if hasattr(model, "layers") else {}
    scores = features if model is None else model(features, **options)
    if logits:
        _checks.no_probabilities("model", _checks.function_behind(scores))
    return one_output("`model` must give the scores [batch, n]", scores)


def compiled_scores(
    model: Scorer, logits: bool = False
) -> Callable[[Any], tuple[Any, tf.Tensor | None]]:
    """`scores_of` by graphs, and Keras's mask, which a tensor loses on its way out."""

    def scores_and_mask(features: Any) -> tuple[Any, tf.Tensor | None]:
        scores = scores_of(model, features, logits)
        return scores, _keras.mask_of(scores)

    # A user's function may read static shapes; a Keras model is used to do without.
    reads_shapes = not (model is None or isinstance(model, keras.Model))
    return graph_of(scores_and_mask, reduce_retracing=not reads_shapes)


def graph_of(function: Callable, reduce_retracing: bool = False) -> Any:
    """A `tf.function` of its own, also of a method of which there are others."""
    # TensorFlow warns if it often traces the same function. A new partial is another
    # function.
    traced = functools.partial(function)
    return tf.function(traced, reduce_retracing=reduce_retracing)


def one_output(rule: str, values: Any) -> Any:
    """Returns scores or labels; raises if a model has several outputs of them."""
    is_sequence = isinstance(values, list | tuple) and any(map(tf.is_tensor, values))
    if is_sequence or isinstance(values, dict):
        key = next(iter(values)) if isinstance(values, dict) else 0
        of_dataset = f"`dataset.map(lambda x, y: (x, y[{key!r}]))`"
        remedy = f"`lambda x: model(x)[{key!r}]`, {of_dataset}"
        raise ValueError(
            f"{rule} of one output: {remedy}. Received: {len(values)} of them."
        )
    return values
