"""Classes: what a head knows of the classes that it scores, their encodings above all."""

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
