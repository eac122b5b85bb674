"""The classes a head scores: a table, features via an encoder, attention among them.

A layer of classes gives rows (encodings), and perhaps biases, by class id. Heads
compute scores.
"""

import base64
import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _registry
from rank4class_tf._lists import labels as _labels
from rank4class_tf._lists.classes import Shard
from rank4class_tf._tf.gather import table_rows
from rank4class_tf._tf.loops import Arguments, in_pieces
from rank4class_tf._types import Array, Tensor, Tensors

# When all classes are encoded, this many are encoded at once.
_ENCODED_AT_ONCE = 1024


class Classes(keras.layers.Layer):
    """Base of what any head accepts: encodings of classes, their number and width.

    A subclass has `num_classes`, `rows` and, once built, the `width` of an encoding;
    `build` gets the shape of the encodings that are scored, `(None, d)`.

    Example:
        >>> class OneHot(Classes):
        ...     num_classes = width = 3
        ...
        ...     def rows(self, ids=None):
        ...         rows = tf.eye(3)
        ...         return rows if ids is None else tf.gather(rows, ids)
        >>> from rank4class_tf.layers import DotProductHead
        >>> DotProductHead(OneHot())(tf.constant([[1.0, 2.0, 3.0]])).numpy()
        array([[1., 2., 3.]], dtype=float32)
    """

    num_classes: int
    width: Any

    def rows(self, ids: Array | None = None) -> Tensor:
        """Encodings of all classes, or of ids of any shape, in the weights' dtype."""
        raise NotImplementedError

    def biases(self, ids: Array | None = None) -> Tensor | None:
        """Numbers that heads add to scores of some or all classes; None for none."""
        return None

    def tables(self) -> tuple[Any, ...]:
        """Rows of all classes and, if there are any, biases: variables or tensors."""
        # Rows are computed in blocks, and again in the backward pass.
        size = min(_ENCODED_AT_ONCE, self.num_classes)
        spec = tf.TensorSpec([size, self.width], self.variable_dtype)
        rows = in_pieces(self.rows, Arguments(tf.range(self.num_classes)), spec)
        rows = tf.ensure_shape(rows, [self.num_classes, self.width])
        biases = self.biases()
        return (rows,) if biases is None else (rows, biases)

    def shard(self) -> Shard | None:
        """Which classes this replica's `tables` have; None if they have all classes."""
        return None

    def rows_of_step(self, *ids: Tensor) -> list[Tensor]:
        """Rows per tensor of ids: `[m]`, the same on all replicas, or `[batch, m]`."""
        return at_joined_ids(self.rows, ids)

    def biases_of_step(self, *ids: Tensor) -> list[Tensor | None]:
        """Biases for each tensor of ids, None without biases."""
        return at_joined_ids(self.biases, ids)

    def to_table(self, block_size: int = 1024) -> "Classes":
        """Encodes all classes, in blocks, as a `ClassTable` fixed in later training."""
        ids = tf.range(self.num_classes)
        starts = range(
            0, self.num_classes, _checks.positive_int("block_size", block_size)
        )
        rows = tf.concat([self.rows(ids[i : i + block_size]) for i in starts], axis=0)
        return ClassTable.from_rows(rows, self.biases(), dtype=self.dtype_policy)


def at_joined_ids(function: Callable, ids: Tensors) -> list:
    """The values `[m, ...]` of ids `[m]` for several tensors of ids, from one call."""
    # One call, since the gradients of several would be several parts for one row of a
    # table.
    values = function(tf.concat([tf.reshape(x, [-1]) for x in ids], axis=0))
    if values is None:
        return [None] * len(ids)
    width = values.shape[1:]
    parts = tf.split(values, [tf.size(x) for x in ids])
    return [
        tf.ensure_shape(
            tf.reshape(part, tf.concat([tf.shape(x), width], axis=0)), x.shape + width
        )
        for part, x in zip(parts, ids, strict=True)
    ]


@_keras.register
class ClassTable(_registry.Configured, Classes):
    """A table of classes with a trained row of numbers for each.

    Args:
        num_classes: number of classes, >= 1.
        width: numbers in a row, >= 1; None for the width of the encodings that are
            scored.
        use_bias: whether each class has a bias, which heads add to its score.
        initializer: initializer of the rows.
        regularizer: None or a regularizer of the rows.

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
    ):
        super().__init__(**kwargs)
        self.num_classes = _checks.positive_int("num_classes", num_classes)
        self.width = _checks.positive_int_or_none("width", width)
        self.use_bias = _checks.flag("use_bias", use_bias)
        self.initializer = keras.initializers.get(initializer)
        self.regularizer = keras.regularizers.get(regularizer)

    @classmethod
    def from_rows(
        cls, rows: Array, biases: Array | None = None, **kwargs: Any
    ) -> "ClassTable":
        """Returns a table of rows `[n, width]` and biases `[n]`.

        `kwargs` are the constructor's.
        """
        rows = tf.convert_to_tensor(rows)
        rule = "`rows` must have the shape [n, width]."
        _checks.require(rows.shape.rank == 2, rule, f"{rows.shape}")
        table = cls(rows.shape[0], rows.shape[1], use_bias=biases is not None, **kwargs)
        table.build((None, rows.shape[1]))
        table.assign(rows)
        if biases is not None:
            table.bias.assign(tf.cast(biases, table.bias.dtype))
        return table

    @classmethod
    def from_dense(cls, layer: keras.layers.Dense, **kwargs: Any) -> "ClassTable":
        """Returns a table with the weights of a built, linear `keras.layers.Dense`."""
        is_dense = isinstance(layer, keras.layers.Dense) and layer.built
        is_right = is_dense and layer.activation is keras.activations.linear
        _checks.require(
            is_right, "`layer` must be a built Dense without activation.", repr(layer)
        )
        _check_not_quantized(layer)
        kernel = tf.convert_to_tensor(layer.kernel)
        bias = tf.convert_to_tensor(layer.bias) if layer.use_bias else None
        return cls.from_rows(tf.transpose(kernel), bias, **kwargs)

    def build(self, input_shape: Any) -> None:
        self.width = self.width or int(input_shape[-1])
        self._add_weights(self.initializer)
        self.built = True

    def _add_weights(self, initializer: Any) -> None:
        shape = (self.num_classes, self.width)
        regularizer = self.regularizer
        self.embeddings = _keras.add_table(
            self, "embeddings", shape, initializer, regularizer=regularizer
        )
        if self.use_bias:
            self.bias = _keras.add_table(self, "bias", (self.num_classes,), "zeros")

    def rows(self, ids: Array | None = None) -> Tensor:
        return _lookup(self.embeddings, ids)

    def tables(self) -> tuple[Any, ...]:
        weights = [self.embeddings, self.bias] if self.use_bias else [self.embeddings]
        return tuple(_keras.variable(weight) for weight in weights)

    def biases(self, ids: Array | None = None) -> Tensor | None:
        return _lookup(self.bias, ids) if self.use_bias else None

    def assign(self, rows: Array) -> None:
        """Sets the rows of all classes."""
        self.embeddings.assign(tf.cast(rows, self.embeddings.dtype))

    def add(self, rows: Array, biases: Array | None = None) -> None:
        """Adds classes at the end; recompile a model that has trained or predicted.

        The new optimizer knows nothing of the old one, unless you copy its variables:
        see "New items, retraining" in `docs/serving.md`.

        Args:
            rows: `[m, width]`, such as the mean encoding of a few examples of each
                class.
            biases: None for 0, or `[m]`; only if the classes have biases.
        """
        dtype = self.embeddings.dtype
        rows = _rounded("rows", rows, dtype)
        rule = f"`rows` must have the shape [m, {self.width}]."
        _checks.require(rows.shape[1:] == (self.width,), rule, f"shape {rows.shape}")
        new_biases = np.zeros(len(rows)) if biases is None else biases
        new_biases = _rounded("biases", new_biases, dtype)
        is_shaped = new_biases.shape == (len(rows),)
        rule = (
            f"`biases` must have the shape [{len(rows)}], and be None without "
            "`use_bias`."
        )
        received = f"shape {new_biases.shape}, use_bias={self.use_bias}"
        is_right = is_shaped and (biases is None or self.use_bias)
        _checks.require(is_right, rule, received)

        added = {"embeddings": rows}
        if self.use_bias:
            added["bias"] = new_biases
        values = {}
        for name, x in added.items():
            values[name] = np.append(np.array(getattr(self, name)), x, 0)
        # A weight cannot grow, so new weights replace it.
        with _keras.changing_weights(self):
            self.num_classes = len(values["embeddings"])
            for name in values:
                delattr(self, name)
            self._add_weights("zeros")
        for name, x in values.items():
            getattr(self, name).assign(x)


def _lookup(weight: Any, ids: Array | None) -> Tensor:
    if ids is None:
        return tf.convert_to_tensor(weight)
    return table_rows(_keras.variable(weight), ids)


def _rounded(name: str, values: Array, dtype: Any) -> np.ndarray:
    """The values as an array, rounded to the dtype of a weight."""
    try:
        return tf.cast(values, dtype).numpy()
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise ValueError(
            f"`{name}` must be numbers. Received: {name}={values!r}."
        ) from error


@_keras.register
class ClassEmbedding(_registry.Configured, keras.layers.Layer):
    """Looks up rows of a layer of classes: one table for the inputs and the scores.

    Args:
        classes: a layer of classes of known width, which a head or an
            `ExtremeClassifier` scores.
        unknown_as_padding: whether ids outside [0, K) are padding, as a served model
            may get them. Else they raise `ValueError`; under XLA, their rows are NaN.

    Input: class ids of any shape; -1 is padding, which the mask leaves out. Output:
    `[..., width]`, zeros at padding.

    Example:
        >>> classes = ClassTable(num_classes=1000, width=16)
        >>> ClassEmbedding(classes)(tf.constant([[3, 7, -1]])).shape
        TensorShape([1, 3, 16])
    """

    def __init__(self, classes: Any, unknown_as_padding: bool = False, **kwargs: Any):
        # Ids that are floating would be rounded.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        self.classes = as_classes(classes)
        self.unknown_as_padding = _checks.flag("unknown_as_padding", unknown_as_padding)

    def build(self, input_shape: Any) -> None:
        if not self.classes.built:
            rule = "`classes` must have a known width."
            _checks.require(self.classes.width is not None, rule, "width=None")
            self.classes.build((None, self.classes.width))
        self.built = True

    def call(self, inputs: Array) -> Tensor:
        num_classes = self.classes.num_classes
        inputs = _labels.dense_ids(inputs)
        ids = tf.reshape(inputs, [-1])
        if self.unknown_as_padding:
            ids = tf.where((ids >= 0) & (ids < num_classes), ids, -1)
        zero = tf.zeros([tf.size(ids), 1], self.compute_dtype)
        # Under XLA, which cannot raise, zero is NaN where an id breaks the rule.
        ids, zero = _labels.padded_ids(ids, num_classes, zero, "inputs")
        rows = self.classes.rows(tf.maximum(ids[:, 0], 0))
        rows = tf.where(ids >= 0, tf.cast(rows, self.compute_dtype), zero)
        width = rows.shape[1]
        rows = tf.reshape(rows, tf.concat([tf.shape(inputs), [width]], axis=0))
        return tf.ensure_shape(rows, [*inputs.shape, width])

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        mask = inputs >= 0
        if self.unknown_as_padding:
            if _keras.KERAS_3 and isinstance(inputs, keras.KerasTensor):
                # The graph of a model would keep the number of classes, though `add`
                # changes it. Each call on numbers makes a mask.
                return None
            # A short dtype may not hold the number of classes.
            highest = tf.as_dtype(inputs.dtype).max
            mask &= inputs <= min(self.classes.num_classes - 1, highest)
        return mask

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return (*input_shape, self.classes.width)


@_keras.register
class TiedClasses(_registry.Configured, Classes):
    """Classes whose rows are the weights of a Keras layer that the model already has.

    A head or an `ExtremeClassifier` that gets such a layer as its `classes` wraps it in
    this one. A language model then scores words by the table that embeds its inputs. If
    Keras has quantized the layer, reading it raises `ValueError`, since its weights are
    codes then.

    Source: Press & Wolf 2017, "Using the Output Embedding to Improve Language Models".

    Args:
        layer: an `Embedding`, a `ReversibleEmbedding` of Keras or keras-hub without a
            soft cap, or a built `Dense` without activation, whose kernel has a column
            for each class.

    Example:
        >>> words = keras.layers.Embedding(1000, 16)
        >>> classes = TiedClasses(words)
        >>> classes.num_classes, classes.width
        (1000, 16)
    """

    def __init__(self, layer: keras.layers.Layer, **kwargs: Any):
        super().__init__(**kwargs)
        rule = (
            "`layer` must be an Embedding without a soft cap, or a built Dense "
            "that is linear."
        )
        if isinstance(layer, keras.layers.Dense):
            fits = layer.built and layer.activation is keras.activations.linear
        else:
            fits = isinstance(layer, keras.layers.Embedding)
        fits &= getattr(layer, "logit_soft_cap", None) is None
        _checks.require(fits, rule, repr(layer))
        self.layer = layer
        if not layer.built:
            layer.build((None,))
        table, are_columns = self._table()
        self.width = table.shape[0 if are_columns else 1]
        self.built = True

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        """The number of classes."""
        table, are_columns = self._table()
        return table.shape[1 if are_columns else 0]

    def _table(self) -> tuple[Any, bool]:
        """The weights of the rows, and whether the classes are the columns."""
        # At each call: Keras can quantize the layer later.
        _check_not_quantized(self.layer)
        # A `ReversibleEmbedding` that is not tied has `reverse_embeddings`.
        name = (
            "kernel"
            if isinstance(self.layer, keras.layers.Dense)
            else "reverse_embeddings"
        )
        are_columns = hasattr(self.layer, name)
        table = getattr(self.layer, name if are_columns else "embeddings")
        # With LoRA the table is a tensor, computed from several variables.
        return table if tf.is_tensor(table) else _keras.variable(table), are_columns

    def rows(self, ids: Array | None = None) -> Tensor:
        table, are_columns = self._table()
        if ids is None:
            table = tf.convert_to_tensor(table)
            return tf.transpose(table) if are_columns else table
        if not are_columns:
            return table_rows(table, ids)
        columns = tf.gather(table, ids, axis=1)
        return tf.transpose(columns, [*range(1, columns.shape.rank), 0])

    def biases(self, ids: Array | None = None) -> Tensor | None:
        _check_not_quantized(self.layer)
        bias = getattr(self.layer, "bias", None)
        return None if bias is None else _lookup(bias, ids)

    def tables(self) -> tuple[Any, ...]:
        table, are_columns = self._table()
        bias = getattr(self.layer, "bias", None)
        rows = tf.transpose(table) if are_columns else table
        return (rows,) if bias is None else (rows, _keras.variable(bias))


def _check_not_quantized(layer: keras.layers.Layer) -> None:
    """Raises if the weights of a layer are codes."""
    mode = getattr(layer, "quantization_mode", None)
    rule = (
        "`layer` must not be quantized: leave it out by the `filters` of Keras's "
        "`quantize`."
    )
    _checks.require(mode is None, rule, repr(mode))


def as_classes(classes: Any, **kwargs: Any) -> Classes:
    """The layer of classes for a head's argument: a number, a layer or its config."""
    if isinstance(classes, dict):
        classes = _keras.deserialized(classes)
    if isinstance(classes, keras.layers.Layer) and not isinstance(classes, Classes):
        return TiedClasses(classes)
    return classes if isinstance(classes, Classes) else ClassTable(classes, **kwargs)


@_keras.register
class EncodedClasses(Classes):
    """Classes whose features, like texts or places in a taxonomy, an encoder encodes.

    Classes with few examples learn from similar ones, and unseen classes can be scored.

    In a step, a head encodes each class that it scores once; `over_classes` does so
    without dropout. For inference, `to_table` encodes all classes once. The features
    are part of the config and of a saved model. XLA does not support strings: use token
    ids or similar there.

    Source: Rank4Class, section 6, which suggests classes with metadata as future work.

    Args:
        features: an array, a list of strings, or a dict or tuple of such, with a row
            for each class.
        encoder: a Keras layer or model that maps them to `[n, width]`; it trains unless
            its `trainable` is False. It may also be the encoder of the examples; a
            `.keras` file then needs Keras 3, since Keras 2 loads two layers in place of
            one.

    Example:
        >>> classes = EncodedClasses(tf.eye(3), keras.layers.Dense(8))
        >>> classes.build((None, 8))
        >>> classes.add([[0.0, 0.5, 0.5]])
        >>> classes.num_classes, classes.rows().shape
        (4, TensorShape([4, 8]))
    """

    def __init__(self, features: Any, encoder: keras.layers.Layer, **kwargs: Any):
        super().__init__(**kwargs)
        self._set_features(_tensors_with_rows(features))
        self.encoder = _keras.checked_layer("encoder", encoder)
        tensors = tf.nest.flatten(self.features)
        # Keras 3 reads it.
        self.supports_jit = all(x.dtype != tf.string for x in tensors)

    @property
    def features(self) -> Any:
        """The features of all classes."""
        return self._features()[0]

    def _set_features(self, tensors: Any) -> None:
        # Keras would wrap a structure.
        self._features = functools.partial(tuple, [tensors])
        self.num_classes = len(tf.nest.flatten(tensors)[0])

    def _encoded(self, ids: Array) -> Tensor:
        return self.encoder(
            tf.nest.map_structure(lambda x: tf.gather(x, ids), self.features)
        )

    def build(self, input_shape: Any) -> None:
        # One row through the encoder builds it and shows its width.
        with tf.init_scope():
            shape = self._encoded([0]).shape
        rule = "`encoder` must map features of m classes to [m, width]."
        is_right = shape.rank == 2 and shape[0] == 1 and shape[1] is not None
        _checks.require(is_right, rule, f"shape {shape} for one class")
        self.width = shape[1]
        self.built = True

    def rows(self, ids: Array | None = None) -> Tensor:
        if ids is None:
            return tf.ensure_shape(
                self.encoder(self.features), [self.num_classes, self.width]
            )
        class_ids = tf.convert_to_tensor(ids)
        rows = self._encoded(tf.reshape(class_ids, [-1]))
        rows = tf.reshape(rows, tf.concat([tf.shape(class_ids), [self.width]], axis=0))
        return tf.ensure_shape(rows, [*class_ids.shape, self.width])

    def add(self, features: Any) -> None:
        """Adds classes after the others, by their features; see `ClassTable.add`."""
        joined = functools.partial(_checks.joined, "features")
        new_features = _tensors_with_rows(features)
        self._set_features(tf.nest.map_structure(joined, self.features, new_features))

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "features": _to_config(self.features)}
        return {**config, "encoder": keras.utils.serialize_keras_object(self.encoder)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "EncodedClasses":
        config = copy.deepcopy(config)  # Keras changes the config that it reads.
        features = _from_config(config.pop("features"))
        return cls(features, **_registry.deserialized(config))


def _tensors_with_rows(features: Any) -> Any:
    """Features as tensors, after a check that all have as many rows."""
    tensors = _tensors(features)
    sizes = [x.shape[0] if x.shape.rank else None for x in tf.nest.flatten(tensors)]
    rule = "`features` must have a row for each class, and at least one."
    _checks.require(
        len(set(sizes)) == 1 and sizes[0], rule, f"arrays with {sizes} rows"
    )
    return tensors


def _tensors(structure: Any) -> Any:
    """Dicts and tuples are structures; a list is an array."""
    if isinstance(structure, dict):
        return {key: _tensors(value) for key, value in structure.items()}
    if isinstance(structure, tuple):
        return tuple(_tensors(value) for value in structure)
    try:
        return tf.convert_to_tensor(structure)
    except (TypeError, ValueError) as error:
        rule = "`features` must be arrays, in dicts and tuples."
        raise ValueError(f"{rule} Received: {structure!r}.") from error


def _to_config(structure: Any) -> dict[str, Any]:
    """The structure in JSON types, with tensors as bytes: Keras's form loses dtypes."""
    if isinstance(structure, dict):
        return {"dict": {key: _to_config(value) for key, value in structure.items()}}
    if isinstance(structure, tuple):
        return {"tuple": [_to_config(value) for value in structure]}
    data = base64.b64encode(tf.io.serialize_tensor(structure).numpy()).decode("ascii")
    return {"tensor": [structure.dtype.name, data]}


def _from_config(config: dict[str, Any]) -> Any:
    """The structure that `_to_config` described."""
    ((kind, value),) = config.items()
    if kind == "dict":
        return {key: _from_config(inner) for key, inner in value.items()}
    if kind == "tuple":
        return tuple(_from_config(inner) for inner in value)
    dtype, data = value
    return tf.io.parse_tensor(base64.b64decode(data), dtype)


@_keras.register
class ClassAttention(_registry.Configured, Classes):
    r"""Classes that attend to each other: a block of self-attention over encodings.

    $$c'_i = c_i + \mathrm{attention}\left(\mathrm{norm}(c)\right)_i$$

    Source: Rank4Class, section 6, which suggests relations between classes as future
    work; Vaswani et al. 2017, "Attention Is All You Need", with the normalisation
    first.

    Time and memory are O(n²) for n classes, even to read a few rows: use up to
    thousands.

    Args:
        classes: a number of classes, for a `ClassTable`, or a layer of classes.
        num_heads: heads of the attention, >= 1, each as wide as the classes over
            `num_heads`.
        dropout: share of the attention weights that training sets to zero, in [0, 1].

    Example:
        >>> classes = ClassAttention(28, num_heads=2)
        >>> classes.build((None, 16))
        >>> classes.rows().shape
        TensorShape([28, 16])
    """

    def __init__(
        self, classes: Any, num_heads: int = 4, dropout: float = 0.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.classes = as_classes(classes)
        self.num_heads = _checks.positive_int("num_heads", num_heads)
        self.dropout = _checks.fraction("dropout", dropout)
        self.norm = keras.layers.LayerNormalization()

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        """The number of classes."""
        return self.classes.num_classes

    def build(self, input_shape: Any) -> None:
        if not self.classes.built:
            self.classes.build(input_shape)
        self.width = self.classes.width
        key_dim = max(1, self.width // self.num_heads)
        self.attention = keras.layers.MultiHeadAttention(
            self.num_heads, key_dim, dropout=self.dropout, use_bias=False
        )
        # A call builds both layers.
        with tf.init_scope():
            row = self.norm(tf.zeros([1, 1, self.width]))
            self.attention(row, row)
        self.built = True

    def rows(self, ids: Array | None = None) -> Tensor:
        rows = self.classes.rows()
        normalised = self.norm(rows[tf.newaxis])
        rows += tf.cast(self.attention(normalised, normalised)[0], rows.dtype)
        return rows if ids is None else tf.gather(rows, ids)

    def tables(self) -> tuple[Any, ...]:
        # Not in blocks: each would compute the rows of all classes, and replicas whose
        # shards have the inner classes exchange nothing in a loop.
        biases = self.biases()
        return (self.rows(),) if biases is None else (self.rows(), biases)

    def biases(self, ids: Array | None = None) -> Tensor | None:
        return self.classes.biases(ids)

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Adds classes to the inner layer of classes; see its `add`."""
        self.classes.add(*args, **kwargs)
