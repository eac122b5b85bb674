"""`Classes`, the base of all layers of classes, and `ClassTable`, the default."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _keras
from rank4class_tf._keras import keras
from rank4class_tf._tf.pieces import in_pieces

# When all classes are encoded, this many are encoded at once.
_BLOCK = 1024


class Classes(keras.layers.Layer):
    """Base: the encodings of classes, their number and their width.

    A subclass has `num_classes`, `width` and `rows`; `build` gets the shape of the encodings that
    are scored, `(None, d)`. Any head accepts it.

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
        """The number of classes."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """The width of an encoding, once built."""
        raise NotImplementedError

    def rows(self, ids: Any = None) -> tf.Tensor:
        """Encodings of some classes or of all.

        Args:
            ids: None, or integers of any shape.

        Returns:
            `[num_classes, width]`, or for ids their shape followed by `width`. The dtype is always
            the dtype of the weights; heads cast in mixed precision.
        """
        raise NotImplementedError

    def biases(self, ids: Any = None) -> tf.Tensor | None:
        """Numbers that heads add to the scores of some classes or of all; None for none."""
        del ids
        return None

    def tables(self) -> tuple[Any, ...]:
        """Rows of all classes and, if there are any, biases: variables or tensors.

        The rows of encoded classes are computed in blocks, and again in the backward pass.
        """
        size = min(_BLOCK, self.num_classes)
        spec = tf.TensorSpec([size, self.width], self.variable_dtype)
        rows = in_pieces(self.rows, tf.range(self.num_classes), size, spec)
        rows = tf.ensure_shape(rows, [self.num_classes, self.width])
        biases = self.biases()
        return (rows,) if biases is None else (rows, biases)

    def shard(self) -> Any:
        """Which of the classes `tables` has, where this replica has only some; None for all."""
        return None

    def rows_of_step(self, *ids: tf.Tensor) -> list[tf.Tensor]:
        """Rows of several ids that a step scores.

        Args:
            *ids: `[m]`, the same on all replicas of a strategy, or `[batch, m]`.
        """
        return [self.rows(x) for x in ids]

    def to_table(self, block_size: int = 1024) -> "Classes":
        """Encodes all classes once and returns a `ClassTable` with these rows.

        `Head.with_classes` puts it into a head, whose inference then encodes no classes.
        Later training does not change the table.

        Args:
            block_size: number of classes that are encoded at once, a positive int.
        """
        ids = range(0, self.num_classes, _checks.positive_int("block_size", block_size))
        blocks = [tf.range(i, min(i + block_size, self.num_classes)) for i in ids]
        rows = tf.concat([self.rows(block) for block in blocks], axis=0)
        return ClassTable.from_rows(rows, self.biases(), dtype=self.dtype_policy)


@_keras.register
class ClassTable(Classes):
    """A table of classes with a trained row of numbers for each.

    Args:
        num_classes: number of classes, >= 1.
        width: numbers in a row, >= 1; None for the width of the encodings that are scored.
        use_bias: whether each class has a bias, which heads add to its score.
        initializer: initializer of the rows.
        regularizer: None or a regularizer of the rows.
        **kwargs: arguments of Keras, such as `name`.

    Raises:
        ValueError: if a number is not a positive integer.

    Example:
        >>> classes = ClassTable(num_classes=28, width=8)
        >>> classes.build((None, 16))
        >>> classes.rows().shape, classes.rows([3, 5, 3]).shape
        (TensorShape([28, 8]), TensorShape([3, 8]))
    """

    def __init__(
        self,
        num_classes: int,
        width: int | None = None,
        use_bias: bool = False,
        initializer: Any = "glorot_uniform",
        regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._num_classes = _checks.positive_int("num_classes", num_classes)
        self._width = width if width is None else _checks.positive_int("width", width)
        self.use_bias = _checks.flag("use_bias", use_bias)
        self.initializer = keras.initializers.get(initializer)
        self.regularizer = keras.regularizers.get(regularizer)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self._num_classes

    @property
    def width(self) -> int:
        """The width of an encoding, once built."""
        return self._width  # type: ignore[return-value]

    @classmethod
    def from_rows(cls, rows: Any, biases: Any = None, **kwargs: Any) -> "ClassTable":
        """Returns a table with these rows.

        Args:
            rows: `[n, width]`.
            biases: None, or `[n]`.
            **kwargs: arguments of the constructor.

        Raises:
            ValueError: if `rows` does not have two dimensions.
        """
        rows = tf.convert_to_tensor(rows)
        if rows.shape.rank != 2:
            raise ValueError(f"`rows` must have the shape [n, width]. Received: {rows.shape}.")
        num_classes, width = rows.shape
        table = cls(num_classes, width, use_bias=biases is not None, **kwargs)
        table.build((None, width))
        table.assign(rows)
        if biases is not None:
            table.bias.assign(tf.cast(biases, table.bias.dtype))
        return table

    @classmethod
    def from_dense(cls, layer: Any, **kwargs: Any) -> "ClassTable":
        """Returns a table with the weights of a `keras.layers.Dense`.

        Args:
            layer: a built `Dense` without activation.
            **kwargs: arguments of the constructor.

        Raises:
            ValueError: if the layer is not such a `Dense`.
        """
        is_dense = isinstance(layer, keras.layers.Dense) and layer.built
        if not is_dense or layer.activation is not keras.activations.linear:
            raise ValueError(
                f"`layer` must be a built Dense without activation. Received: {layer!r}."
            )
        kernel = tf.convert_to_tensor(layer.kernel)
        bias = tf.convert_to_tensor(layer.bias) if layer.use_bias else None
        return cls.from_rows(tf.transpose(kernel), bias, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Creates the rows, for encodings `[batch, d]`."""
        self._width = self._width or int(input_shape[-1])
        self._add_weights(self.initializer, "zeros")
        self.built = True

    def _add_weights(self, rows, biases):
        self.embeddings = _keras.add_table(
            self, "embeddings", (self.num_classes, self.width), rows, self.regularizer
        )
        if self.use_bias:
            self.bias = _keras.add_table(self, "bias", (self.num_classes,), biases)

    def rows(self, ids: Any = None) -> tf.Tensor:
        """Rows of some classes or of all."""
        if ids is None:
            return tf.convert_to_tensor(self.embeddings)
        return tf.gather(_keras.variable(self.embeddings), ids)

    def tables(self) -> tuple[Any, ...]:
        """The variables of the rows and, if there are any, the biases."""
        weights = [self.embeddings, self.bias] if self.use_bias else [self.embeddings]
        return tuple(_keras.variable(weight) for weight in weights)

    def biases(self, ids: Any = None) -> tf.Tensor | None:
        """Biases of some classes or of all; None without `use_bias`."""
        if not self.use_bias:
            return None
        if ids is None:
            return tf.convert_to_tensor(self.bias)
        return tf.gather(_keras.variable(self.bias), ids)

    def assign(self, rows: Any) -> None:
        """Sets the rows of all classes."""
        self.embeddings.assign(tf.cast(rows, self.embeddings.dtype))

    def add(self, rows: Any, biases: Any = None) -> None:
        """Adds classes after the others; they are scored from now on.

        If the model was compiled or called through `predict`, compile it again, as after a change
        of `trainable`.

        Args:
            rows: `[m, width]`, such as the mean encoding of a few examples of each class.
            biases: None for 0, or `[m]`; only if the classes have biases.

        Raises:
            ValueError: if a shape is wrong, a value is not a number, or there are biases without
                `use_bias`. The classes then stay as they were.
        """
        rows = _numbers("rows", rows, self.embeddings.dtype)
        if biases is not None:
            biases = _numbers("biases", biases, self.embeddings.dtype)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise ValueError(
                f"`rows` must have the shape [m, {self.width}]. Received: shape {rows.shape}."
            )
        if biases is not None and not (self.use_bias and np.shape(biases) == (len(rows),)):
            raise ValueError(
                f"`biases` must have the shape [{len(rows)}], and be None without `use_bias`. "
                f"Received: shape {np.shape(biases)}, use_bias={self.use_bias}."
            )
        all_rows = np.concatenate([np.array(self.embeddings), rows])
        all_biases = None
        if self.use_bias:
            added = np.zeros(len(rows)) if biases is None else biases
            all_biases = np.concatenate([np.array(self.bias), added])
        with _keras.changing_weights(self):
            self._num_classes = len(all_rows)
            del self.embeddings
            if self.use_bias:
                del self.bias
            self._add_weights("zeros", "zeros")
        self.embeddings.assign(all_rows)
        if self.use_bias:
            self.bias.assign(all_biases)

    def get_config(self) -> dict:
        """Returns the constructor arguments, with the current number of classes."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "width": self.width,
            "use_bias": self.use_bias,
            "initializer": keras.initializers.serialize(self.initializer),
            "regularizer": keras.regularizers.serialize(self.regularizer),
        }


def as_classes(classes: Any, **kwargs: Any) -> Classes:
    """The layer of classes for the argument of a head, which may be a number.

    Args:
        classes: a number, a layer, or the config of one.
        **kwargs: arguments of the `ClassTable` for a number.
    """
    if isinstance(classes, dict):
        classes = _keras.deserialized(classes)
    if isinstance(classes, Classes):
        return classes
    return ClassTable(classes, **kwargs)


def _numbers(name, values, dtype):
    """The values as an array, rounded as a weight of this dtype holds them."""
    try:
        return tf.cast(values, dtype).numpy()
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise ValueError(f"`{name}` must be numbers. Received: {name}={values!r}.") from error
