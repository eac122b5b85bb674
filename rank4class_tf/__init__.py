"""Classification and retrieval as ranking: Keras losses, heads and metrics."""

from rank4class_tf import (
    data,
    encoders,
    experiments,
    layers,
    losses,
    metrics,
    models,
    ops,
    optimizers,
    tfr,
)
from rank4class_tf.evaluation import average, compare, evaluate, evaluate_retrieval

# The one place of the version; setup.cfg reads it.
__version__ = "0.1.0"

__all__ = [
    "average",
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
    "tfr",
]
