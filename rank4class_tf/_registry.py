"""Objects by name: the lookup behind `losses.get`, `layers.get_head` and `metrics.get`."""

import re

from rank4class_tf._keras import keras


def snake_case(name):
    """`"ApproxNDCGLoss"` -> `"approx_ndcg_loss"`."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def get(kind, classes, identifier, /, **kwargs):
    """Returns the object that `identifier` names.

    Args:
        kind: what is looked up, for the error ("loss").
        classes: name -> class.
        identifier: a name, a config from `keras.utils.serialize_keras_object`, or an object, which
            is returned as it is.
        **kwargs: constructor arguments, with a name only.
    """
    if isinstance(identifier, str):
        if identifier not in classes:
            known = ", ".join(sorted(classes))
            raise ValueError(f"`identifier` must name a {kind}: {known}. Received: {identifier!r}.")
        return classes[identifier](**kwargs)
    if kwargs:
        raise ValueError(
            f"Constructor arguments go with the name of a {kind} only. "
            f"Received: {identifier!r} and {sorted(kwargs)}."
        )
    if isinstance(identifier, dict):
        return keras.utils.deserialize_keras_object(identifier)
    if isinstance(identifier, tuple(classes.values())):
        return identifier
    raise TypeError(
        f"`identifier` must be a name, a config or a {kind} of this package. "
        f"Received: {identifier!r}."
    )


def by_snake_case(classes, suffix=""):
    """Name -> class; the name is the class's in snake case, less `suffix`."""
    return {snake_case(c.__name__.removesuffix(suffix)): c for c in classes}
