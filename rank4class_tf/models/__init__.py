"""Keras models with custom training steps, for very many classes and for retrieval."""

from rank4class_tf.models.extreme_classifier import ExtremeClassifier
from rank4class_tf.models.multi_worker import MultiWorker
from rank4class_tf.models.two_tower import TwoTower

__all__ = ["ExtremeClassifier", "MultiWorker", "TwoTower"]
