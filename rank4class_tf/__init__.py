"""Classification and retrieval as ranking: Keras losses, heads and metrics."""

import importlib
from typing import TYPE_CHECKING, Any

from rank4class_tf import layers, losses, metrics, models, ops, optimizers, tfr
from rank4class_tf.calibration import adjust_logits, calibrate, conformalize
from rank4class_tf.evaluation import (
    Comparison,
    Estimate,
    Evaluation,
    average,
    compare,
    evaluate,
    evaluate_retrieval,
)
from rank4class_tf.serving import export_top_k
from rank4class_tf.trials import Trial, TryOut, try_out

if TYPE_CHECKING:
    from rank4class_tf import callbacks, data, encoders, plots

# The one place of the version; setup.cfg reads it.
__version__ = "0.1.0"

__all__ = ["try_out", "TryOut", "Trial"]
__all__ += ["evaluate", "Evaluation", "Estimate", "compare", "Comparison", "average"]
__all__ += ["evaluate_retrieval", "calibrate", "conformalize", "adjust_logits"]
__all__ += ["export_top_k"]
__all__ += ["losses", "layers", "metrics", "models", "optimizers", "callbacks", "plots"]
__all__ += ["data", "encoders", "tfr", "ops"]

# Imported at their first use: no saved model needs them.
_ON_FIRST_USE = ("callbacks", "data", "encoders", "plots")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_FIRST_USE})


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
