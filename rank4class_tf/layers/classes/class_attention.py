"""ClassAttention."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _keras
from rank4class_tf._keras import keras
from rank4class_tf.layers.classes.class_table import Classes, as_classes


@_keras.register
class ClassAttention(Classes):
    r"""Classes that attend to each other: a block of self-attention over their encodings.

    $$c'_i = c_i + \mathrm{attention}\left(\mathrm{norm}(c)\right)_i$$

    Source: Rank4Class, section 6, which suggests relations between classes as future work; Vaswani
    et al. 2017, "Attention Is All You Need", with the normalisation first.

    Time and memory are O(n²) for n classes, and the rows of a few classes cost as much as the rows
    of all, so it suits up to thousands of classes.

    Args:
        classes: a number of classes, for a `ClassTable`, or a layer of classes.
        num_heads: heads of the attention, >= 1.
        key_dim: width of a head, >= 1; None for the width of the classes over `num_heads`.
        dropout: share of the attention weights that training sets to zero, in [0, 1].
        **kwargs: arguments of Keras, such as `name`.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> classes = ClassAttention(28, num_heads=2)
        >>> classes.build((None, 16))
        >>> classes.rows().shape
        TensorShape([28, 16])
    """

    def __init__(
        self,
        classes: Any,
        num_heads: int = 4,
        key_dim: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.classes = as_classes(classes)
        self.num_heads = _checks.positive_int("num_heads", num_heads)
        self.key_dim = key_dim if key_dim is None else _checks.positive_int("key_dim", key_dim)
        self.dropout = _checks.fraction("dropout", dropout)
        self.norm = keras.layers.LayerNormalization()

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return self.classes.num_classes

    @property
    def width(self) -> int:
        """The width of an encoding."""
        return self.classes.width

    def build(self, input_shape: Any) -> None:
        """Creates the block."""
        if not self.classes.built:
            self.classes.build(input_shape)
        key_dim = self.key_dim or max(1, self.width // self.num_heads)
        self.attention = keras.layers.MultiHeadAttention(
            self.num_heads, key_dim, dropout=self.dropout, use_bias=False
        )
        with tf.init_scope():
            row = self.norm(tf.zeros([1, 1, self.width]))
            self.attention(row, row)
        self.built = True

    def rows(self, ids: Any = None) -> tf.Tensor:
        """Encodings of some classes or of all, after attention to all."""
        rows = self.classes.rows()
        normalised = self.norm(rows[tf.newaxis])
        rows += tf.cast(self.attention(normalised, normalised)[0], rows.dtype)
        return rows if ids is None else tf.gather(rows, ids)

    def biases(self, ids: Any = None) -> tf.Tensor | None:
        """Biases of the classes without the block."""
        return self.classes.biases(ids)

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Adds classes to the inner layer of classes; see its `add`."""
        self.classes.add(*args, **kwargs)

    def get_config(self) -> dict:
        """Returns the constructor arguments."""
        return {
            **super().get_config(),
            "classes": keras.utils.serialize_keras_object(self.classes),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "dropout": self.dropout,
        }
