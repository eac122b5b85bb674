"""Objects by name: the lookup behind `losses.get`, `layers.get_head` and `metrics.get`."""

import inspect
import re
from collections.abc import Iterable
from typing import Any

from rank4class_tf import _keras


def snake_case(name: str) -> str:
    """`"ApproxNDCGLoss"` -> `"approx_ndcg_loss"`."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def get(
    kind: str,
    base: type | tuple[type, ...],
    classes: dict[str, type],
    identifier: Any,
    /,
    **kwargs: Any,
) -> Any:
    """Returns the object that `identifier` names.

    Args:
        kind: what is looked up, for the error ("loss").
        base: the class of all such objects, those of users too.
        classes: name -> class.
        identifier: a name, a config from `keras.utils.serialize_keras_object`, or an object, which
            is returned as it is.
        **kwargs: constructor arguments, with a name only.
    """
    if isinstance(identifier, str):
        if identifier not in classes:
            known = ", ".join(sorted(classes))
            raise ValueError(
                f"`identifier` must be the name of a known {kind}: {known}. "
                f"Received: {identifier!r}."
            )
        try:
            # Of the class itself, Python 3.11.2 would give that of Keras 2's `__new__`.
            constructor = classes[identifier].__init__  # type: ignore[misc]
            inspect.signature(constructor).bind(None, **kwargs)
            _check_names(classes[identifier], kwargs)
        except TypeError as error:
            given = ", ".join(f"{name}={value!r}" for name, value in kwargs.items()) or "none"
            raise ValueError(
                f"The {kind} {identifier!r} takes other arguments: {error}. Received: {given}."
            ) from None
        return classes[identifier](**kwargs)
    if kwargs:
        raise ValueError(
            f"Constructor arguments go with the name of a {kind} only. "
            f"Received: {identifier!r} and {sorted(kwargs)}."
        )
    if isinstance(identifier, dict):
        return _keras.deserialized(identifier)
    if isinstance(identifier, base):
        return identifier
    raise TypeError(
        f"`identifier` must be the name of a known {kind}, a config or such an object. "
        f"Received: {identifier!r}."
    )


def _check_names(cls, arguments):
    """Raises a TypeError for a name that no constructor takes, as far as these tell."""
    known: set[str] = set()
    for base in getattr(cls, "__mro__", (object,))[:-1]:  # None of a function that builds one.
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters
        known |= parameters.keys()
        if all(p.kind is not p.VAR_KEYWORD for p in parameters.values()):
            for name in arguments.keys() - known:
                raise TypeError(f"got an unexpected keyword argument {name!r}")
            return


def by_snake_case(classes: Iterable[type], suffix: str = "") -> dict[str, type]:
    """Name -> class; the name is the class's in snake case, less `suffix`."""
    return {snake_case(c.__name__.removesuffix(suffix)): c for c in classes}


def among(
    namespace: dict[str, Any], names: Iterable[str], base: type | tuple[type, ...]
) -> list[type]:
    """The classes of those names that are built by name: subclasses of `base` but for bases.

    A base stands in a module of its own whose name begins with an underscore.
    """
    classes = [c for c in map(namespace.get, names) if isinstance(c, type)]
    modules = {c: c.__module__.rpartition(".")[2] for c in classes}
    return [c for c in classes if issubclass(c, base) and not modules[c].startswith("_")]
