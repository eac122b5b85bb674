"""Features of classes, in any structure, and their form in a config."""

import base64
from typing import Any

import tensorflow as tf


class Features:
    """Tensors in a structure, with a row for each class.

    Keras would wrap a plain structure; it leaves this object as it is.
    """

    def __init__(self, structure: Any) -> None:
        self.tensors = _tensors(structure)
        sizes = [x.shape[0] if x.shape.rank else None for x in tf.nest.flatten(self.tensors)]
        if len(set(sizes)) != 1 or not sizes[0]:
            raise ValueError(
                "`features` must have a row for each class, and at least one. "
                f"Received: arrays with {sizes} rows."
            )
        self.num_classes = sizes[0]

    def rows(self, ids: tf.Tensor | None = None) -> Any:
        """The features of some classes `[m]` or of all."""
        if ids is None:
            return self.tensors
        return tf.nest.map_structure(lambda x: tf.gather(x, ids), self.tensors)

    def added(self, structure: Any) -> "Features":
        """These and those of more classes."""
        more = Features(structure).tensors
        return Features(
            tf.nest.map_structure(
                lambda x, y: tf.concat([x, y if x.dtype == y.dtype else tf.cast(y, x.dtype)], 0),
                self.tensors,
                more,
            )
        )


def _tensors(structure):
    """Dicts and tuples are structures; a list is an array."""
    if isinstance(structure, dict):
        return {key: _tensors(value) for key, value in structure.items()}
    if isinstance(structure, tuple):
        return tuple(_tensors(value) for value in structure)
    try:
        return tf.convert_to_tensor(structure)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`features` must be arrays, in dicts and tuples. Received: {structure!r}."
        ) from error


def to_config(structure: Any) -> Any:
    """The structure in JSON's types, for `from_config`."""
    if isinstance(structure, dict):
        return {"dict": {key: to_config(value) for key, value in structure.items()}}
    if isinstance(structure, tuple):
        return {"tuple": [to_config(value) for value in structure]}
    data = base64.b64encode(tf.io.serialize_tensor(structure).numpy()).decode("ascii")
    return {"tensor": [structure.dtype.name, data]}


def from_config(config: Any) -> Any:
    """The structure that `to_config` described."""
    ((kind, value),) = config.items()
    if kind == "dict":
        return {key: from_config(part) for key, part in value.items()}
    if kind == "tuple":
        return tuple(from_config(part) for part in value)
    dtype, data = value
    return tf.io.parse_tensor(base64.b64decode(data), dtype)
