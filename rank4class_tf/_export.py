"""SavedModels that find the best classes, without this package."""

import io
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files
from rank4class_tf.layers.top_classes import check_classes


def write_top_k(
    path: str | os.PathLike[str],
    model: keras.Model,
    best: Callable[[Any, Any], dict[str, tf.Tensor]],
    features_spec: Any,
    num_classes: int,
    k: int | None,
    class_names: Sequence[str] | None,
    also: Sequence[Any] = (),
) -> None:
    """Writes a SavedModel with the signatures `top_k` and `serving_default`.

    Args:
        path: a folder. A SavedModel that is there is replaced when the new one is whole.
        model: what has the weights.
        best: a function of features and k that returns the outputs, `class_ids` among them.
        features_spec: a `tf.TensorSpec` or `tf.SparseTensorSpec` of the features, or a structure.
        num_classes: K.
        k: in [1, K]; None means 10, or K if that is less.
        class_names: None, or the name of each class, for an output `class_names`.
        also: layers that `best` reads besides the model.
    """
    default_k = _checks.positive_int("k", min(10, num_classes) if k is None else k)
    check_classes(default_k, class_names, num_classes)
    rule = f"`k` must be in [1, {num_classes}]."
    archive = keras.export.ExportArchive()
    for resource in (model, *also):
        archive.track(resource)
    if class_names is not None:
        # A constant of the graph may not be larger than 2 GB.
        names = tf.Variable(list(class_names), trainable=False, dtype=tf.string)
        archive.track(names)

    def named(features, k):
        result = best(features, k)
        if class_names is not None:
            result["class_names"] = tf.gather(names, result["class_ids"])
        return result

    def top_k(features, k):
        in_range = tf.debugging.Assert((k >= 1) & (k <= num_classes), [rule, "Received:", k])
        with tf.control_dependencies([in_range]):
            return named(features, tf.identity(k))

    k_spec = tf.TensorSpec([], tf.int32, name="k")
    archive.add_endpoint("top_k", top_k, [features_spec, k_spec])
    archive.add_endpoint("serving_default", lambda x: named(x, default_k), [features_spec])
    # Keras prints the temporary name.
    with _files.replacing_saved_model(path) as temporary, redirect_stdout(io.StringIO()):
        archive.write_out(temporary)
