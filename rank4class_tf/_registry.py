"""Objects by name, and their configurations."""

import difflib
import inspect
import re
from collections.abc import Callable
from typing import Any, Self, TypeVar

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras

_PLAIN = (type(None), bool, int, float, str, list, tuple, dict)


class Configured:
    """Mixin, listed before Keras's class: the config is the constructor's arguments.

    An object keeps each argument of its constructor, and of its `Configured` parents,
    in an attribute of that name; `get_config` gives a variable as its number.
    """

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        # A layer's constructor passes name and dtype on to Keras, in `**kwargs`.
        is_layer = isinstance(self, keras.layers.Layer)
        config = super().get_config() if is_layer else {}  # type: ignore[misc]
        return {**config, **constructor_arguments(self)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the object that `get_config` describes."""
        return cls(**deserialized(config))


def constructor_arguments(instance: object, base: type = Configured) -> dict[str, Any]:
    """The named constructor arguments of `base`'s subclasses, read from attributes."""
    # From the base to the class, so that a subclass's arguments come last.
    config = {}
    for cls in reversed(type(instance).__mro__):
        if issubclass(cls, base) and "__init__" in vars(cls):
            for name in parameter_names(cls.__init__):
                value = getattr(instance, name)
                if isinstance(value, tf.Variable):
                    value = value.numpy().tolist()
                if not isinstance(value, _PLAIN):
                    value = keras.utils.serialize_keras_object(value)
                config[name] = value
    return config


def parameter_names(constructor: Callable) -> list[str]:
    """The named arguments of a constructor."""
    _, *parameters = inspect.signature(constructor).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [x.name for x in parameters if x.kind not in variadic]


def deserialized(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration of `constructor_arguments` with the objects that it describes."""
    return {
        name: _keras.deserialized(x) if isinstance(x, dict) and "class_name" in x else x
        for name, x in config.items()
    }


_Class = TypeVar("_Class", bound=type)

# The suffix of each kind's classes, which their registered names leave out.
_SUFFIXES = {"loss": "", "metric": "AtK", "head": "Head", "sorter": "Sorter"}
_SUFFIXES["interaction"] = "Interaction"

# kind -> name -> class, or a function that builds the object.
_NAMED: dict[str, dict[str, Any]] = {kind: {} for kind in _SUFFIXES}


def register(kind: str) -> Callable[[_Class], _Class]:
    """Decorator that registers a class with Keras, and its name for `get` of a kind."""

    def registered(cls: _Class) -> _Class:
        build = getattr(cls, "pretrained", cls)  # A sorter with weights comes trained.
        register_name(
            kind, snake_case(cls.__name__.removesuffix(_SUFFIXES[kind])), build
        )
        return _keras.register(cls)

    return registered


def register_name(kind: str, name: str, build: Callable) -> None:
    """Gives a class, or a function that builds an object, its name for `get`."""
    _NAMED[kind][name] = build


def snake_case(name: str) -> str:
    """`"ApproxNDCGLoss"` -> `"approx_ndcg_loss"`, and `"BPref"` -> `"bpref"`."""
    name = re.sub(r"(^[A-Z]{2,}|(?<!^)[A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def registered_classes(kind: str, base: type) -> dict[str, Any]:
    """Name -> class, of the subclasses of `base` that are registered as a kind."""
    classes = ((name, c) for name, c in _NAMED[kind].items() if isinstance(c, type))
    return {name: c for name, c in classes if issubclass(c, base)}


def by_name(
    argument: str,
    known: dict,
    value: Any,
    is_object: bool | None = None,
    rule: str = "callable",
) -> Any:
    """Returns what a name stands for, or an object as it is."""
    # Errors call the value `argument`. `rule` ends "must be one of these names or ...",
    # and `is_object` tells whether the value is what it says; None means that any
    # callable is.
    if isinstance(value, str) and value in known:
        return known[value]
    if callable(value) if is_object is None else is_object:
        return value
    raise ValueError(
        f"`{argument}` must be one of {sorted(known)} or {rule}. Received: {value!r}."
    )


def get(
    kind: str, base: type | tuple[type, ...], identifier: Any, /, **kwargs: Any
) -> Any:
    """Returns the object of a kind that `identifier` names, constructed with `kwargs`.

    `identifier` may also be a config from `keras.utils.serialize_keras_object`, or an
    object of the class `base`, which is returned as it is.
    """
    classes = _NAMED[kind]
    if isinstance(identifier, str):
        if identifier not in classes:
            known = ", ".join(sorted(classes))
            matches = difflib.get_close_matches(identifier, classes, n=1)
            # `"softmax"` lacks the ending of `"softmax_loss"`, which comes before close
            # matches.
            matches = [
                name for name in (f"{identifier}_{kind}",) if name in classes
            ] or matches
            hint = f" Did you mean {matches[0]!r}?" if matches else ""
            rule = f"`identifier` must be the name of a known {kind}: {known}."
            raise ValueError(f"{rule} Received: {identifier!r}.{hint}")
        return classes[identifier](**kwargs)
    if kwargs:
        rule = f"Constructor arguments go with the name of a {kind} only."
        raise ValueError(f"{rule} Received: {identifier!r} and {sorted(kwargs)}.")
    if isinstance(identifier, dict):
        return _keras.deserialized(identifier)
    if isinstance(identifier, base):
        return identifier
    rule = (
        f"`identifier` must be the name of a known {kind}, a config or such an object."
    )
    raise TypeError(f"{rule} Received: {identifier!r}.")
