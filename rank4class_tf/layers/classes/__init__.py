"""Layers of classes: the encodings of the classes that a head scores, and their biases."""

from rank4class_tf.layers.classes.class_attention import ClassAttention
from rank4class_tf.layers.classes.class_table import Classes, ClassTable, as_classes
from rank4class_tf.layers.classes.encoded_classes import EncodedClasses
from rank4class_tf.layers.classes.sharded_class_table import ShardedClassTable

__all__ = [
    "ClassAttention",
    "ClassTable",
    "Classes",
    "EncodedClasses",
    "ShardedClassTable",
    "as_classes",
]
