"""What all kinds of classes share."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras


class Classes(keras.layers.Layer):
    """Base: the encodings of classes, their number and their width.

    A subclass has `num_classes`, `width` and `rows`; `build` gets the shape of the encodings that
    are scored, `(None, d)`. Any head takes it.

    Example:
        >>> class OneHot(Classes):
        ...     num_classes = width = 3
        ...     def rows(self, ids=None):
        ...         rows = tf.eye(3)
        ...         return rows if ids is None else tf.gather(rows, ids)
        >>> from rank4class_tf.layers import DotProductHead
        >>> DotProductHead(OneHot())(tf.constant([[1.0, 2.0, 3.0]])).numpy()
        array([[1., 2., 3.]], dtype=float32)
    """

    @property
    def num_classes(self) -> int:
        """How many there are."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """How many numbers encode one, once built."""
        raise NotImplementedError

    def rows(self, ids: Any = None) -> tf.Tensor:
        """Encodings of some classes or of all.

        Args:
            ids: None, or integers of any shape.

        Returns:
            `[num_classes, width]`, or for ids their shape and then `width`. Always of the precision
            of the weights: heads cast in mixed precision.
        """
        raise NotImplementedError

    def biases(self, ids: Any = None) -> tf.Tensor | None:
        """Numbers that heads add to the scores of some classes or of all; None for none."""
        del ids
        return None

    def to_table(self, block_size: int = 1024) -> "Classes":
        """Encodes all classes once and returns them as a `ClassTable` of the same rows.

        `Head.with_classes` puts it into a head, for inference that need not encode classes again.
        The table is of the weights as they are now: after training, make another.

        Args:
            block_size: classes that are encoded at once, a positive int.
        """
        from rank4class_tf.layers.classes.class_table import ClassTable  # It is one of these.

        ids = range(0, self.num_classes, _checks.positive_int("block_size", block_size))
        blocks = [tf.range(i, min(i + block_size, self.num_classes)) for i in ids]
        rows = tf.concat([self.rows(block) for block in blocks], axis=0)
        return ClassTable.from_rows(rows, self.biases(), dtype=self.dtype_policy)


def as_classes(classes: Any, **kwargs: Any) -> Classes:
    """The layer of classes that a head was given, by their number too.

    Args:
        classes: a number, a layer, or the config of one.
        **kwargs: arguments of the `ClassTable` for a number.
    """
    if isinstance(classes, dict):
        classes = _keras.deserialized(classes)
    if isinstance(classes, Classes):
        return classes
    from rank4class_tf.layers.classes.class_table import ClassTable

    return ClassTable(classes, **kwargs)
