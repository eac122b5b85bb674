"""SavedModels that find the best classes, without this package."""

import functools
import keyword
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files
from rank4class_tf.layers.top_classes import as_names, check_classes


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
        path: a folder. The SavedModel replaces an older one there when it is whole.
        model: the model whose weights are saved.
        best: takes features and k, and returns a dict of outputs, `class_ids` among them.
        features_spec: a `tf.TensorSpec` or `tf.SparseTensorSpec` of the features, or a structure;
            `specs_of_arguments` gives them the names of the arguments.
        num_classes: K.
        k: in [1, K]; None means 10, or K if that is less.
        class_names: None, or the name of each class, for an output `class_names`.
        also: layers that `best` reads besides the model.
    """
    default_k = _checks.positive_int("k", min(10, num_classes) if k is None else k)
    if class_names is not None:
        class_names = as_names(class_names)
    check_classes(default_k, class_names, num_classes)
    rule = f"`k` must be in [1, {num_classes}]."
    if class_names is not None:
        # A variable, since a constant of the graph may not be larger than 2 GB.
        names = tf.Variable(class_names, trainable=False, dtype=tf.string)

    def named(features, k):
        result = best(features, k)
        if class_names is not None:
            result["class_names"] = tf.gather(names, result["class_ids"])
        return result

    def serving_default(features):
        return named(features, default_k)

    def top_k(features, k):
        in_range = tf.debugging.Assert((k >= 1) & (k <= num_classes), [rule, "Received:", k])
        with tf.control_dependencies([in_range]):
            return named(features, tf.identity(k))

    features_spec = specs_of_arguments(features_spec)
    k_spec = tf.TensorSpec([], tf.int32, name="k")
    signatures = {
        "top_k": tf.function(top_k, [features_spec, k_spec]),
        "serving_default": tf.function(serving_default, [features_spec]),
    }
    module = tf.Module()
    # We list what the graphs read. TensorFlow would trace a model that is itself a part, and with
    # dense features, as in Keras 3's own archive.
    module.read = [
        [v for f in signatures.values() for v in f.get_concrete_function().graph.variables],
        [table for root in (model, *also) for table in _tables(root)],
    ]
    with _files.replacing_saved_model(path) as temporary:
        tf.saved_model.save(module, temporary, signatures)


def specs_of_arguments(specs: Any) -> Any:
    """The specs, renamed so that each can be an argument of a signature that also takes `k`.

    A spec in a dictionary takes its key if it has no name. Characters other than ASCII letters,
    digits and underscores become underscores. A name that is then a keyword, `k` or `self`, or does
    not begin with a letter, gets `arg_` before it. A repeated name gets `_1` behind it.
    """
    taken: set[str] = set()

    def renamed(spec, key=None):
        name = getattr(spec, "name", None) or key
        if not isinstance(spec, tf.TensorSpec) or name is None:
            return spec
        name = re.sub("[^0-9A-Za-z_]", "_", name)
        if keyword.iskeyword(name) or name in ("k", "self") or not name[0].isalpha():
            name = f"arg_{name}"
        while name in taken:
            name += "_1"
        taken.add(name)
        return tf.TensorSpec(spec.shape, spec.dtype, name)

    if isinstance(specs, dict):
        return {
            key: tf.nest.map_structure(functools.partial(renamed, key=str(key)), of_key)
            for key, of_key in specs.items()
        }
    return tf.nest.map_structure(renamed, specs)


def _tables(layer):
    """The lookup tables of a layer and the layers within."""
    return [
        found
        for part in layer._flatten_layers()
        for found in tf.train.TrackableView(part).descendants()
        if isinstance(found, tf.saved_model.experimental.TrackableResource)
    ]
