"""SavedModels that search."""

import io
import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files


def export_top_k(
    path: str | os.PathLike[str],
    model: keras.Model,
    features_spec: Any,
    k: int | None,
    size: int,
    best: Callable[[Any, Any], dict[str, tf.Tensor]],
    resources: Iterable[Any] = (),
) -> None:
    """Writes a SavedModel with the signatures `top_k` and `serving_default`.

    Args:
        path: a folder. A SavedModel that is there is replaced when the new one is whole.
        model: what is exported.
        features_spec: a `tf.TensorSpec` or `tf.SparseTensorSpec` of the features, or a structure.
        k: of `serving_default`, in [1, size]; None means 10, or size if that is less.
        size: how many there are to find.
        best: features, k -> what the signatures give.
        resources: what `best` reads besides the model.

    Raises:
        ValueError: if `k` is out of range.
    """
    default_k = _checks.positive_int("k", min(10, size) if k is None else k)
    rule = f"`k` must be in [1, {size}]."
    if default_k > size:
        raise ValueError(f"{rule} Received: k={k}.")
    archive = keras.export.ExportArchive()
    for resource in (model, *resources):
        archive.track(resource)

    def top_k(features, k):
        in_range = tf.debugging.Assert((k >= 1) & (k <= size), [rule, "Received:", k])
        with tf.control_dependencies([in_range]):
            return best(features, tf.identity(k))

    if not model.built:
        tf.function(model).get_concrete_function(features_spec)
    k_spec = tf.TensorSpec([], tf.int32, name="k")
    archive.add_endpoint("top_k", top_k, [features_spec, k_spec])
    archive.add_endpoint("serving_default", lambda x: best(x, default_k), [features_spec])
    # Keras prints the temporary name.
    with _files.replacing_saved_model(path) as temporary, redirect_stdout(io.StringIO()):
        archive.write_out(temporary)
