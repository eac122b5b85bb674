"""Classification and retrieval as ranking: Keras losses, heads and metrics."""

from rank4class_tf import (
    callbacks,
    data,
    encoders,
    experiments,
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
    "experiments",
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
