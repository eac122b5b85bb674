"""Names that Keras and TensorFlow may change without notice, since they document none.

`tests/test_private_names.py` lists them all, also the methods that we override.
"""

import importlib
from typing import Any

import tensorflow as tf


def private(owner: Any, name: str) -> Any:
    """An attribute of an object, or of the module with a name; else a plain error."""
    try:
        if isinstance(owner, str):
            owner = importlib.import_module(owner)
        return getattr(owner, name)
    except (AttributeError, ImportError) as error:
        raise ImportError(
            f"rank4class_tf needs `{name}`, which is not public: {error}. This is "
            f"TensorFlow {tf.__version__} with Keras "
            f"{getattr(tf.keras, '__version__', 2)}; the README names versions that "
            "were tested."
        ) from error


# Base of what `tf.train.Checkpoint` saves; no public class lets us write tensors.
Trackable = private("tensorflow.python.trackable.base", "Trackable")
