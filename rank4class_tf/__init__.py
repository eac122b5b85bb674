"""Classification and retrieval as ranking: Keras losses, heads and metrics."""

from rank4class_tf import data, layers, losses, metrics, models, ops, optimizers, tfr

__all__ = ["data", "layers", "losses", "metrics", "models", "ops", "optimizers", "tfr"]
