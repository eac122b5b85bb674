"""Imports TF-Ranking on a TensorFlow without `tf.estimator`, by `load`."""

import collections
import importlib.metadata
import importlib.util
import inspect
import re
import types
import warnings
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras


class _Dropped:
    """Base of classes that replace dropped ones: naming one is fine, a call raises."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"`tf.estimator.{cls.__name__}` is gone: TensorFlow dropped estimators in "
            "2.16. Use a Keras pipeline, such as rank4class_tf.tfr.RankingPipeline or "
            "tfr.keras.pipeline, or TensorFlow 2.15."
        )


class _StandIn(types.ModuleType):
    """A module in which every unset name is a class that raises when called."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        dropped = type(name, (_Dropped,), {})
        setattr(self, name, dropped)  # `isinstance` needs the same class each time.
        return dropped


# TF-Ranking uses these without an estimator: its feature and data modules compare the
# modes, and its serving input functions return receivers.
_ESTIMATOR: Any = _StandIn("tensorflow.estimator")
_ESTIMATOR.ModeKeys = types.SimpleNamespace(TRAIN="train", EVAL="eval", PREDICT="infer")
_ESTIMATOR.export = _StandIn("tensorflow.estimator.export")
_ServingInputReceiver = collections.namedtuple(
    "_ServingInputReceiver", "features receiver_tensors"
)
_ESTIMATOR.export.ServingInputReceiver = _ServingInputReceiver


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def load() -> types.ModuleType:
    """Imports TF-Ranking on any supported TensorFlow, and returns its module.

    TF-Ranking needs Keras 2 and imports `tf.estimator`. TensorFlow 2.15 has both. On a
    newer one, set the environment variable `TF_USE_LEGACY_KERAS=1` before TensorFlow is
    first imported, for tf_keras (Keras 2); `load` sets `tf.estimator` and
    `tf.compat.v1.estimator` to a stand-in, and gives `tfr.metrics.eval_metric` the
    `inspect.getargspec` that Python 3.11 dropped.

    Two parts do not work: the estimators of `tfr.estimator` and `extension.pipeline`,
    which raise NotImplementedError when they are called; and, without
    `tf-models-official`, TFR-BERT (`extension.task` and `extension.premade`).

    Example:
        >>> tfr = load()
        >>> float(tfr.keras.losses.ApproxNDCGLoss()([[1.0, 0.0]], [[9.0, 0.0]]))
        -1.0
    """
    if _keras.KERAS_3:
        raise ImportError(
            "TF-Ranking needs Keras 2, but Keras 3 is active. Install tf_keras and "
            "set the environment variable TF_USE_LEGACY_KERAS=1 before TensorFlow is "
            f"first imported. Received: TensorFlow {tf.__version__}, Keras "
            f"{keras.__version__}."
        )
    try:
        version = importlib.metadata.version("tensorflow-ranking")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(
            "TF-Ranking is not installed. Install it with: pip install "
            "'tensorflow-ranking>=0.5.3'"
        ) from None
    if not (0, 5, 3) <= _numbers(version) < (0, 6):
        rule = "TF-Ranking must have a version >= 0.5.3 and < 0.6."
        raise ImportError(f"{rule} Received: {version}.")
    has_keras_2 = _numbers(tf.__version__) < (2, 16)
    if has_keras_2 and importlib.util.find_spec("tf_keras") is not None:
        warnings.warn(
            "TensorFlow 2.15 includes Keras 2. If tf_keras is installed as well, "
            "models that are saved after one was loaded cannot be loaded: pip "
            "uninstall tf_keras",
            stacklevel=2,
        )
    for module in (tf, tf.compat.v1):
        if not hasattr(module, "estimator"):
            module.estimator = _ESTIMATOR
    import tensorflow_ranking

    if not hasattr(inspect, "getargspec"):
        metrics: Any = importlib.import_module("tensorflow_ranking.python.metrics")
        getargspec = inspect.getfullargspec
        metrics.inspect = types.SimpleNamespace(
            getargspec=getargspec, getfullargspec=getargspec
        )
    return tensorflow_ranking
