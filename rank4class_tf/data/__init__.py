"""Real datasets as tf.data pipelines of `(features, class_ids)`; they need the `data` extra."""

from rank4class_tf.data._digits import digits
from rank4class_tf.data._goemotions import goemotions
from rank4class_tf.data._splits import Splits

__all__ = ["Splits", "digits", "goemotions"]
