"""Real datasets as tf.data pipelines of `(features, class_ids)`, and files of others.

Most need the `data` extra.
"""

from rank4class_tf.data import elwc
from rank4class_tf.data.extreme import (
    extreme_classification,
    read_extreme_header,
    read_extreme_split,
    write_extreme_classification,
    write_top_k,
)
from rank4class_tf.data.graded import lists_from_groups, read_letor
from rank4class_tf.data.images import cifar10, digits, imagenet2012
from rank4class_tf.data.interactions import UserItems, movielens
from rank4class_tf.data.splits import Splits
from rank4class_tf.data.texts import goemotions, mind

__all__ = ["digits", "cifar10", "goemotions", "imagenet2012", "movielens", "mind"]
__all__ += ["extreme_classification", "read_extreme_header", "read_extreme_split"]
__all__ += [
    "write_extreme_classification",
    "write_top_k",
    "Splits",
    "UserItems",
    "elwc",
]
__all__ += ["read_letor", "lists_from_groups"]
