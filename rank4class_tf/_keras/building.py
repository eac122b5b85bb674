"""How Keras builds models, and reads them from configurations."""

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf._keras.version import KERAS_3
from rank4class_tf._tf.memory import owned
from rank4class_tf._tf.private import private
from rank4class_tf._types import Array

# Building: models have symbolic inputs, or Keras 3 builds them in a graph that never
# runs.


def checked_layer(name: str, value: Any) -> Any:
    """Raises unless `value` is a layer or a model of this Keras; returns it."""
    if not isinstance(value, keras.layers.Layer):
        raise ValueError(
            f"`{name}` must be a Keras layer or model. Received: {name}={value!r}."
        )
    return value


def symbolic_inputs(layer: keras.Model) -> Any:
    """The symbolic inputs of a model, in their structure; None where it has none."""
    if not getattr(layer, "inputs", None):
        return None
    # A Sequential of Keras 3 has no `input`.
    return layer.inputs[0] if isinstance(layer, keras.Sequential) else layer.input


def builds_symbolically() -> bool:
    """Whether Keras 3 builds a model in a graph that never runs."""
    scope = "keras.src.backend.common.symbolic_scope"
    return KERAS_3 and private(scope, "in_symbolic_scope")()


def given_labels(y_true: Array) -> Array:
    """Labels as the user gave them, in memory of their own."""
    # Where Keras 3 builds a model that a strategy trains, in a graph that never runs,
    # it passes the mean of the devices' labels, which is float64 even for integers. We
    # cast it to integers, so that ids look like ids.
    is_float64 = getattr(y_true, "dtype", None) == tf.float64
    if is_float64 and builds_symbolically():
        return tf.cast(y_true, tf.int64)
    return owned(y_true)


# Configurations: objects are read from those of any Keras. The calls of a layer, which
# Keras 3 numbers, are in a private list.


def deserialized(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Object of a `serialize_keras_object` config, even from a Keras 2 `.h5` file."""
    # Keras 2 reads older formats, and looks for their classes by bare names.
    classes = {} if KERAS_3 else dict(_classes_within(config))
    classes |= custom_objects or {}
    return keras.utils.deserialize_keras_object(config, custom_objects=classes)


def deserialized_in_turn(
    configs: Iterable, custom_objects: dict | None = None
) -> list[Any]:
    """Objects of configs, as by `deserialized`; models among them may share layers."""
    # A model's configuration names a call of a layer as `["dense", 0, 0]`: its first
    # call in this model, and the first output. Keras 3 takes the 0 for the first call
    # of all, which is one of an earlier model where that has the same layer. So we add
    # the number of earlier calls. One model around all of them would not help: neither
    # Keras loads a model that calls them, and a model of their outputs would flatten
    # them, and lose a `Sequential` or a subclass.
    models: list[Any] = []
    num_calls: dict[int, int] = {}  # By earlier models, of each shared layer.
    for config in configs:
        renumbered = _renumbered(config, num_calls, {})
        models.append(deserialized(renumbered, custom_objects))
        if KERAS_3:
            num_calls |= _num_calls(config, models[-1])
    return models


def _renumbered(part: Any, num_calls: dict[int, int], earlier: dict[str, int]) -> Any:
    """A copy of a part of a configuration, where calls count from the earlier ones.

    `num_calls` has the earlier calls by the numbers that mark shared objects, `earlier`
    those of the layers of the model around this part, by their names.
    """
    match part:
        case dict():
            layers = _layer_configs(part)
            if layers:
                earlier = {
                    layer["config"].get("name"): num_calls[layer["shared_object_id"]]
                    for layer in layers
                    if layer.get("shared_object_id") in num_calls
                }
            # Keras removes items from what it reads: a copy even if nothing changes.
            return {
                name: _renumbered(value, num_calls, earlier)
                for name, value in part.items()
            }
        case [str() as layer, int() as call, output] if layer in earlier:
            return [layer, call + earlier[layer], output]
        case list() | tuple():
            copied = [_renumbered(value, num_calls, earlier) for value in part]
            return tuple(copied) if isinstance(part, tuple) else copied
    return part


def _layer_configs(config: Any) -> list[dict]:
    """The configurations of layers in that of a model; none in others."""
    # A layer of the user may have an option `layers=[64, 32]`.
    layers = config.get("layers") if isinstance(config, dict) else None
    if not isinstance(layers, list):
        return []
    return [x for x in layers if isinstance(x, dict) and "config" in x]


def _num_calls(config: Any, model: Any) -> dict[int, int]:
    """How often a model's layers were called, by the numbers marking shared objects."""
    # Other layers may have an attribute `layers` of their own.
    layers = model.layers if isinstance(model, keras.Model) else []
    layers_by_name = {layer.name: layer for layer in layers}
    num_calls: dict[int, int] = {}
    for layer_config in _layer_configs(config["config"]):
        layer = layers_by_name.get(layer_config["config"].get("name"))
        if layer is None:
            continue
        if "shared_object_id" in layer_config:  # Set only while saving.
            calls = private(layer, "_inbound_nodes")
            num_calls[layer_config["shared_object_id"]] = len(calls)
        num_calls |= _num_calls(layer_config, layer)
    return num_calls


def _classes_within(config: Any) -> Iterator[tuple[str, Any]]:
    """The bare name and class of each object in a config, as far as Keras knows it."""
    if isinstance(config, dict) and "registered_name" in config:
        name = config["class_name"]
        cls = keras.utils.get_registered_object(config["registered_name"])
        package, *modules = str(config["module"]).split(".")
        if cls is None and package == "keras":
            cls = keras
            for part in (*modules, name):
                cls = getattr(cls, part, None)
        if cls is not None:
            yield name, cls
    if isinstance(config, dict):
        config = list(config.values())
    if isinstance(config, list | tuple):
        for part in config:
            yield from _classes_within(part)
