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
from rank4class_tf.evaluation import average, compare, evaluate, evaluate_retrieval

# The one place of the version; setup.cfg reads it.
__version__ = "0.1.0"

__all__ = [
    "average",
    "callbacks",
    "compare",
    "data",
    "encoders",
    "evaluate",
    "evaluate_retrieval",
    "experiments",
    "layers",
    "losses",
    "metrics",
    "models",
    "ops",
    "optimizers",
    "plots",
    "tfr",
]
