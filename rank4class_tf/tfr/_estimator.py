"""A stand-in for `tf.estimator`, which TensorFlow dropped in 2.16 and TF-Ranking still imports."""

import types
from types import ModuleType
from typing import NamedTuple


class ModeKeys:
    """The modes, which TF-Ranking's feature and data modules compare with."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class ServingInputReceiver(NamedTuple):
    """What TF-Ranking's serving input functions return."""

    features: dict
    receiver_tensors: dict


class _Dropped:
    """Base of the stand-ins for dropped classes: code may name them, but not call them."""

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError(
            f"`tf.estimator.{cls.__name__}` is gone: TensorFlow dropped estimators in 2.16. Use a "
            "Keras pipeline, such as rank4class_tf.tfr.RankingPipeline or tfr.keras.pipeline, or "
            "TensorFlow 2.15."
        )


class _StandIn(types.ModuleType):
    """A module in which every other name is a class that raises when it is called."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        dropped = type(name, (_Dropped,), {})
        setattr(self, name, dropped)  # `isinstance` needs the same class each time.
        return dropped


def stand_in() -> ModuleType:
    """Returns a module with what TF-Ranking's import and its Keras part need."""
    export = _StandIn("tensorflow.estimator.export")
    vars(export)["ServingInputReceiver"] = ServingInputReceiver
    estimator = _StandIn("tensorflow.estimator")
    vars(estimator).update(ModeKeys=ModeKeys, export=export)
    return estimator
