"""Classification and retrieval as ranking: Keras losses, heads and metrics."""

from rank4class_tf import layers, losses, metrics, ops

__all__ = ["layers", "losses", "metrics", "ops"]
