"""Classification and retrieval as ranking: Keras losses, heads and metrics."""

from rank4class_tf import data, layers, losses, metrics, models, ops, optimizers, tfr
from rank4class_tf.evaluation import compare, evaluate, evaluate_retrieval

# The one place of the version; setup.cfg reads it.
__version__ = "0.1.0"

__all__ = [
    "compare",
    "data",
    "evaluate",
    "evaluate_retrieval",
    "layers",
    "losses",
    "metrics",
    "models",
    "ops",
    "optimizers",
    "tfr",
]
