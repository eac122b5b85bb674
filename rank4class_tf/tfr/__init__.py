"""The bridge to TF-Ranking; `load`, or first use of any other name here, imports it."""

import importlib
import importlib.util
from typing import Any

from rank4class_tf import _keras
from rank4class_tf.tfr.loading import load

_ON_FIRST_USE = {
    "RankingPipeline": "pipeline",
    "RankingDatasetBuilder": "pipeline",
    "InteractionScorer": "serving",
    "ServingSignatures": "serving",
    "PipelineMixin": "pipeline",
    "ServingMixin": "pipeline",
}

__all__ = ["load", *_ON_FIRST_USE]


def __dir__() -> list[str]:
    """The public names, for completion; only `load` if TF-Ranking cannot run."""
    usable = not _keras.KERAS_3 and importlib.util.find_spec("tensorflow_ranking")
    return sorted(["load", *(_ON_FIRST_USE if usable else ())])


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ON_FIRST_USE[name]}"), name)
