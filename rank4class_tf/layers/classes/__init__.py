"""Classes: what a head knows of the classes that it scores, their encodings above all."""

from rank4class_tf.layers.classes.class_attention import ClassAttention
from rank4class_tf.layers.classes.class_table import Classes, ClassTable, as_classes
from rank4class_tf.layers.classes.encoded_classes import EncodedClasses

__all__ = ["ClassAttention", "ClassTable", "Classes", "EncodedClasses", "as_classes"]
