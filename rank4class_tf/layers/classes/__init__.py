"""Classes: the one place of what stands for each class, its encoding, in all heads."""

from rank4class_tf.layers.classes._base import Classes, as_classes
from rank4class_tf.layers.classes.class_attention import ClassAttention
from rank4class_tf.layers.classes.class_table import ClassTable
from rank4class_tf.layers.classes.encoded_classes import EncodedClasses

__all__ = ["ClassAttention", "ClassTable", "Classes", "EncodedClasses", "as_classes"]
