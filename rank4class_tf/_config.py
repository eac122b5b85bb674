"""Configurations, read from the arguments of constructors."""

import dataclasses
import inspect
from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras

_PLAIN = (type(None), bool, int, float, str, list, tuple, dict)


def constructor_arguments(instance: object, base: type) -> dict[str, Any]:
    """The constructor's named arguments, each from the attribute of its name, serialized.

    Args:
        instance: the object. It keeps each argument of its constructor, and of those of its
            parents up to `base`, in an attribute of that name. A variable is the number it holds.
        base: the first class whose constructor counts.
    """
    config = {}
    for cls in reversed(type(instance).__mro__):
        if issubclass(cls, base) and "__init__" in vars(cls):
            for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
                if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                    value = getattr(instance, name)
                    if isinstance(value, tf.Variable):
                        value = value.numpy().tolist()
                    plain = isinstance(value, _PLAIN)
                    config[name] = value if plain else keras.utils.serialize_keras_object(value)
    return config


def deserialized(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration of `constructor_arguments` with the objects that it describes."""

    def value_of(value):
        is_object = isinstance(value, dict) and "class_name" in value
        return _keras.deserialized(value) if is_object else value

    return {name: value_of(value) for name, value in config.items()}


class Configured:
    """A dataclass that Keras serializes."""

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the object that `get_config` describes."""
        return cls(**config)
