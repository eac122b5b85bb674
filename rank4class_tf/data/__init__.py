"""Real datasets as tf.data pipelines of `(features, class_ids)`; they need the `data` extra."""

from rank4class_tf.data._digits import digits
from rank4class_tf.data._goemotions import goemotions
from rank4class_tf.data._movielens import movielens
from rank4class_tf.data._splits import Splits
from rank4class_tf.data._user_items import UserItems, from_pairs

__all__ = ["Splits", "UserItems", "digits", "from_pairs", "goemotions", "movielens"]
