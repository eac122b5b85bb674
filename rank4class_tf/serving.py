"""Export of models that give scores; `_export.py` writes the SavedModel."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _export, _keras
from rank4class_tf._batches import check_gives_scores, scores_of
from rank4class_tf._types import PathLike, Tensor
from rank4class_tf.layers import TopClasses


def export_top_k(
    model: keras.Model,
    path: PathLike,
    k: int | None = None,
    class_names: Sequence[str] | None = None,
    probabilities: keras.layers.Layer | None = None,
    prediction_sets: keras.layers.Layer | None = None,
    features_spec: Any = None,
) -> None:
    """Writes a SavedModel that finds the k classes with the highest scores.

    It runs without this package, for example in TensorFlow Serving, and has the
    signatures

    - `top_k(features, k)`, which fails unless k is in [1, n],
    - `serving_default(features)`, the same for the `k` given here.

    They return the outputs of `layers.TopClasses`. If a model takes several features by
    name, so do the signatures in place of `features`; no name may be a keyword of
    Python. Underscores replace characters other than ASCII letters and digits, and
    `arg_` goes before `k`, `self` and a name that does not begin with a letter. A
    sparse input becomes three arguments: `features_indices`, in any order,
    `features_values` and `features_dense_shape`. For millions of classes see
    `ExtremeClassifier.export_top_k`.

    Args:
        model: a Keras model that maps features to scores `[batch, n]`.
        path: a folder. The SavedModel replaces an older one there when it is whole.
        k: in [1, n]; None means 10, or n if that is less.
        class_names: None, or the name of each class.
        probabilities: None, or a layer from scores to probabilities, as of `calibrate`.
        prediction_sets: None, or the layer of `conformalize`.
        features_spec: `tf.TensorSpec`s of the features; None for the model's symbolic
            inputs.

    Example:
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
        >>> export_top_k(model, "served", 2, ["cat", "dog", "eel"])  # doctest: +SKIP
        >>> served = tf.saved_model.load("served").signatures[
        ...     "serving_default"
        ... ]  # doctest: +SKIP
        >>> served(features=tf.ones([1, 4]))["class_names"].shape  # doctest: +SKIP
        TensorShape([1, 2])
    """
    check_gives_scores(model)
    if features_spec is None:
        inputs = _keras.symbolic_inputs(model)
        rule = "`features_spec` must be given for a model without symbolic inputs."
        _checks.require(inputs is not None, rule, None)

        def spec(tensor: Any) -> Any:
            shape = [None, *tensor.shape[1:]]
            # A symbolic input of Keras 2 has a spec, one of Keras 3 a flag.
            has_sparse_spec = isinstance(
                getattr(tensor, "type_spec", None), tf.SparseTensorSpec
            )
            if has_sparse_spec or getattr(tensor, "sparse", False):
                return tf.SparseTensorSpec(shape, tensor.dtype)
            # `_export` names the others: by their key, or `features`.
            name = tensor.name if isinstance(inputs, list | tuple) else None
            return tf.TensorSpec(shape, tensor.dtype, name)

        features_spec = tf.nest.map_structure(spec, inputs)
    _export.check_integer_specs("features_spec", features_spec, model)
    score = tf.function(lambda features: scores_of(model, features))
    concrete = score.get_concrete_function(features_spec)
    shape = concrete.output_shapes
    is_right = (
        isinstance(shape, tf.TensorShape) and shape.rank == 2 and shape[1] is not None
    )
    _checks.require(is_right, "`model` must give scores [batch, n].", f"shape {shape}")
    dtype = "float64" if concrete.output_dtypes == tf.float64 else "float32"
    top_classes = TopClasses(1, None, probabilities, prediction_sets, dtype=dtype)

    def find_best(features: Any, k: int | Tensor) -> dict[str, Tensor]:
        return top_classes.best(scores_of(model, features), k)

    _export.write_top_k(path, model, find_best, features_spec, shape[1], k, class_names)
