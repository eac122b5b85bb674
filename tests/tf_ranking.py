"""TF-Ranking as a reference: imported on any TensorFlow, in Keras 2 mode."""

import collections
import os
import sys
import types

import tensorflow as tf


def load():
    """Returns the `tensorflow_ranking` module.

    TensorFlow 2.16 dropped `tf.estimator`, which TF-Ranking imports but its losses do not use; a
    stand-in module takes its place.

    Raises:
        ImportError: if TF-Ranking is not installed, or Keras is not Keras 2.
    """
    if os.environ.get("TF_USE_LEGACY_KERAS") != "1" and hasattr(tf.keras, "ops"):
        raise ImportError("TF-Ranking needs TF_USE_LEGACY_KERAS=1.")
    if not hasattr(tf, "estimator"):
        estimator = _Estimator("tensorflow.estimator")
        sys.modules["tensorflow.estimator"] = estimator
        tf.estimator = tf.compat.v1.estimator = estimator
    import tensorflow_ranking

    return tensorflow_ranking


class _Estimator(types.ModuleType):
    """A module in which every name is an empty class, but for what TF-Ranking reads on import."""

    class ModeKeys:
        TRAIN, EVAL, PREDICT = "train", "eval", "infer"

    export = types.SimpleNamespace(
        ServingInputReceiver=collections.namedtuple(
            "ServingInputReceiver", ["features", "receiver_tensors"]
        )
    )

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})
