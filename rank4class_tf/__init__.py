"""Classification and retrieval as ranking: Keras losses, heads and metrics."""

import importlib
from typing import TYPE_CHECKING, Any

from rank4class_tf import (
    callbacks,
    encoders,
    layers,
    losses,
    metrics,
    models,
    ops,
    optimizers,
    plots,
    tfr,
)
from rank4class_tf.calibration import calibrate, conformalize
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

if TYPE_CHECKING:
    from rank4class_tf import data

# The one place of the version; setup.cfg reads it.
__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Estimate",
    "Evaluation",
    "average",
    "calibrate",
    "callbacks",
    "compare",
    "conformalize",
    "data",
    "encoders",
    "evaluate",
    "evaluate_retrieval",
    "export_top_k",
    "layers",
    "losses",
    "metrics",
    "models",
    "ops",
    "optimizers",
    "plots",
    "tfr",
]


def __dir__() -> list[str]:
    """What the package has, for completion."""
    return sorted({*globals(), "data"})


def __getattr__(name: str) -> Any:
    # Imported at its first use: a model needs none of it.
    if name != "data":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.data")
