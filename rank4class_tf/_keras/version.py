"""Which Keras runs, and AutoGraph, which rewrites code for it."""

from collections.abc import Callable

import tensorflow as tf
from tensorflow import keras

from rank4class_tf._tf.private import private

# `tensorflow.keras` is Keras 3 from TensorFlow 2.16 on, Keras 2 before that, and
# tf_keras (Keras 2) when `TF_USE_LEGACY_KERAS=1`.
try:
    KERAS_3 = hasattr(keras, "ops")  # This access runs the lazy import.
    _backend = keras.backend.backend() if KERAS_3 else "tensorflow"
except ImportError as error:
    # The module that Keras did not find.
    _backend = getattr(error.__context__, "name", None)
    if _backend in (None, "keras", "tf_keras"):
        raise ImportError(
            "TensorFlow's Keras is not installed. TF_USE_LEGACY_KERAS=1 needs "
            "tf_keras, in the version of TensorFlow: pip install "
            f"'tf_keras=={tf.__version__.rpartition('.')[0]}.*'"
        ) from error
if _backend != "tensorflow":
    raise ImportError(
        "Keras must run on TensorFlow: set KERAS_BACKEND=tensorflow before it is "
        "imported, or `backend` in ~/.keras/keras.json. Received: Keras on "
        f"{_backend}."
    )

register = keras.utils.register_keras_serializable(package="rank4class_tf")


# AutoGraph: it must leave our code as it is, and convert a user's. The former is set at
# import, so that without its names nothing can be imported.


def _keep_from_autograph() -> None:
    """Has AutoGraph leave this package as it is, as it leaves TensorFlow's modules."""
    # Rewriting the source of everything that a loss or a layer calls takes seconds in
    # the first step of Keras 2's `fit` and of a user's `tf.function`. Keras 3's `fit`
    # does not use AutoGraph.
    config = private("tensorflow.python.autograph.core", "config")
    ours = private(config, "DoNotConvert")("rank4class_tf")
    config.CONVERSION_RULES = ours, *private(config, "CONVERSION_RULES")


_keep_from_autograph()


def with_autograph_of_caller(formula: Callable) -> Callable:
    """Has AutoGraph convert a user's formula where it converts the code calling it."""
    autograph = private(tf.__internal__, "autograph")
    context = autograph.control_status_ctx()
    is_ours = formula.__module__.startswith("rank4class_tf.")
    if is_ours or context.status.name != "ENABLED":
        return formula
    return autograph.tf_convert(formula, context, user_requested=True)
