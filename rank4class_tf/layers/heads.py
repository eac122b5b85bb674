"""Heads: layers that score all classes.

A head is a layer of classes, an interaction of an encoding with each class, and biases.
A named head fixes the interaction, which owns the formula. `sampled.py` has the head
for very many classes.
"""

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _registry
from rank4class_tf._lists import labels as _labels
from rank4class_tf._lists.classes import ClassProducts
from rank4class_tf._lists.positions import at_positions
from rank4class_tf._tf import search
from rank4class_tf._types import Choice, Shape, Tensor
from rank4class_tf.layers.classes import ClassTable, as_classes
from rank4class_tf.layers.interactions import (
    BilinearInteraction,
    ConcatInteraction,
    CosineInteraction,
    DotProductInteraction,
    Interaction,
    LatentCrossInteraction,
    MLPInteraction,
    get_interaction,
)
from rank4class_tf.layers.scoring import ClassScores

Initializer: TypeAlias = str | keras.initializers.Initializer
# A number of classes, or a layer of them.
Classes: TypeAlias = int | keras.layers.Layer


@_keras.register
class Head(keras.layers.Layer):
    """Scores all classes, through an interaction between the encoding and each class.

    The other heads are this one with an interaction of this package. Use it with your
    own.

    Args:
        classes: a number of classes, >= 1, for a `ClassTable`, or a layer of classes.
        interaction: an `Interaction`, or the name of one of this package's.

    Input: `[batch, d]`. Output: `[batch, num_classes]`.

    Example:
        >>> Head(28, "bilinear").compute_output_shape((None, 16))
        (None, 28)
    """

    _use_bias = False  # Of the `ClassTable` that a number of classes becomes.
    # The arguments that `try_out` may tune; see `RankingLoss`.
    tunable: tuple[str, ...] = ()

    def __init__(self, classes: Classes, interaction: str | Interaction, **kwargs: Any):
        # Arguments of `Dense`.
        for name in ("kernel_regularizer", "kernel_initializer"):
            table = f"a `ClassTable({name.removeprefix('kernel_')}=...)`"
            rule = f"`{name}` is no argument of this head: `classes` may be {table}."
            _checks.require(name not in kwargs, rule, f"{name}={kwargs.get(name)!r}")
        super().__init__(**kwargs)
        self.supports_masking = True
        self.classes = as_classes(
            classes, use_bias=self._use_bias, dtype=self.dtype_policy
        )
        options = {"dtype": self.dtype_policy} if isinstance(interaction, str) else {}
        self.interaction = get_interaction(interaction, **options)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self.classes.num_classes

    @classmethod
    def from_dense(cls, layer: keras.layers.Dense, **kwargs: Any) -> "Head":
        """Returns a head that starts with the scores of a trained `keras.layers.Dense`.

        The layer has no activation; further arguments go to the constructor. The
        interaction must be able to start as a dot product. An MLP does so with
        `add_dot_product`, which is set.
        """
        classes = ClassTable.from_dense(layer)
        head = cls(classes, **kwargs)
        head.build((None, classes.width))
        head.interaction.start_as_dot_product()
        return head

    def with_classes(self, classes: Classes) -> "Head":
        """Returns a head over other, equally wide classes with this head's interaction.

        `head.classes.to_table()` keeps the encodings for inference; classes that
        training has not seen are scored zero-shot.
        """
        return Head(classes, self.interaction, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1] if len(input_shape) >= 2 else None
        is_right = width is not None
        rule = (
            "`inputs` must have the shape [batch, d] or [batch, ..., d] with d known."
        )
        _checks.require(is_right, rule, tuple(input_shape))
        if not self.classes.built:
            self.classes.build((None, width))
        if not self.interaction.built:
            classes_shape = (self.num_classes, self.classes.width)
            self.interaction.build([(None, width), classes_shape])
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return at_positions(self._row_scores, inputs)

    def _row_scores(self, inputs: tf.Tensor) -> tf.Tensor:
        """Scores `[batch, num_classes]` of encodings `[batch, d]`."""
        if not tf.as_dtype(inputs.dtype).is_floating:
            inputs = tf.cast(inputs, self.compute_dtype)
        rows = tf.cast(self.classes.rows(), self.compute_dtype)
        scores = self.interaction([inputs, rows])
        # A user's interaction may have another dtype.
        scores = tf.cast(scores, self.compute_dtype)
        biases = self.classes.biases()
        return scores if biases is None else scores + tf.cast(biases, scores.dtype)

    def over_classes(self, encodings: Tensor) -> ClassProducts:
        """Prepares the scores of all classes for a loss that computes them in blocks.

        A loss of `rank4class_tf.losses` takes the result in place of scores, with class
        ids as labels. It computes blocks of scores, and again for the gradient, so
        `[batch, num_classes]` is never in memory. In mixed precision they are products
        of factors in half precision, as those of `Dense` are, summed in float32.
        Encodings are `[batch, d]`; the interaction must be the dot product or the
        cosine.

        Example:
            >>> from rank4class_tf.losses import SoftmaxLoss
            >>> head = DotProductHead(1000)
            >>> loss = SoftmaxLoss()([3, 7], head.over_classes(tf.zeros([2, 16])))
            >>> float(loss)  # log(1000)
            6.907755...
        """
        encodings = tf.convert_to_tensor(encodings)
        interaction = self.interaction
        is_cosine = isinstance(interaction, CosineInteraction)
        is_right = is_cosine or isinstance(interaction, DotProductInteraction)
        rule = (
            "`interaction` must be the dot product or the cosine for a loss over "
            "classes in blocks."
        )
        _checks.require(is_right, rule, type(interaction).__name__)
        if not self.built:
            self.build(encodings.shape)
        scores = ClassScores(self.classes, is_cosine, self.compute_dtype)
        return scores.over_classes(encodings, interaction.scale if is_cosine else 1.0)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.num_classes)

    def get_config(self) -> dict:
        # Only the arguments of this class: a named head takes arguments of its
        # interaction in place of the interaction. An argument without an attribute
        # raises, since it would be lost.
        values = {
            **self.interaction.get_config(),
            **vars(self),
            "classes": keras.utils.serialize_keras_object(self.classes),
            "interaction": keras.utils.serialize_keras_object(self.interaction),
        }
        config = super().get_config()
        for name in _registry.parameter_names(type(self).__init__):
            config[name] = values[name] if name in values else getattr(self, name)
        return config


@_registry.register("head")
class DotProductHead(Head):
    r"""The usual last layer of a classifier: a dot product with each class encoding.

    $$s_i = c_i^\top h + b_i$$

    Source: Rank4Class, section 3.2.

    Args:
        classes: as in `Head`, as wide as the encodings. If it is a number, the table
            has biases.

    Example:
        >>> DotProductHead(28).compute_output_shape((None, 16))
        (None, 28)
    """

    _use_bias = True

    def __init__(self, classes: Classes, **kwargs: Any):
        super().__init__(
            classes, DotProductInteraction(dtype=kwargs.get("dtype")), **kwargs
        )


@_registry.register("head")
class BilinearHead(Head):
    r"""A bilinear form of encoding and class encoding, which may differ in width.

    $$s_i = h^\top W c_i + b_i$$

    Args:
        classes: as in `Head`. If it is a number, the table has biases.
        kernel_initializer: initializer of W, `[d, width of the classes]`.

    Example:
        >>> BilinearHead(28).compute_output_shape((None, 16))
        (None, 28)
    """

    _use_bias = True

    def __init__(
        self,
        classes: Classes,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ):
        interaction = BilinearInteraction(kernel_initializer, dtype=kwargs.get("dtype"))
        super().__init__(classes, interaction, **kwargs)


@_registry.register("head")
class CosineHead(Head):
    r"""The cosine of the angle between encoding and class encoding, times a scale.

    $$s_i = a \left(\frac{h^\top c_i}{\|h\| \|c_i\|} - m \, y_i\right)$$

    With a margin m > 0, training lowers the score of an example's own class, y_i = 1,
    so that it must exceed the others by more. This needs calls with class ids, unlike
    `keras.Sequential`'s.

    Source: Wang et al. 2018, "CosFace: Large Margin Cosine Loss for Deep Face
    Recognition".

    Args:
        classes: as in `Head`, as wide as the encodings.
        scale: a, > 0.
        margin: m, in [0, 1].

    Input: `[batch, d]`, and class ids if there is a margin. A class id that does not
    exist raises `ValueError`; under XLA, the scores of its example become NaN. Output:
    `[batch, num_classes]`.

    Example:
        >>> head = CosineHead(28, scale=30.0, margin=0.3)
        >>> head(tf.ones([2, 16]), class_ids=[3, 27], training=True).shape
        TensorShape([2, 28])
    """

    tunable = ("scale",)

    def __init__(
        self, classes: Classes, scale: float = 16.0, margin: float = 0.0, **kwargs: Any
    ):
        super().__init__(
            classes, CosineInteraction(scale, dtype=kwargs.get("dtype")), **kwargs
        )
        self.margin = _checks.fraction("margin", margin)

    def call(
        self,
        inputs: tf.Tensor,
        class_ids: Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Scores every class.

        Ids are `[batch]`, `[batch, 1]` or `[batch, P]` padded with -1.
        """
        if class_ids is None:
            if training and self.margin:
                problem = f"`margin`={self.margin} has no effect without class ids"
                remedy = "call the head with `class_ids=`, in a functional model."
                warnings.warn(f"{problem}: {remedy}", stacklevel=2)
            return super().call(inputs)

        def score_with_margin(inputs: tf.Tensor, class_ids: Tensor) -> tf.Tensor:
            scores = self._row_scores(inputs)
            positives, scores = _labels.padded_ids(
                class_ids, self.num_classes, scores, "class_ids"
            )
            positives = _labels.distinct_ids(positives)  # A repeated id counts once.
            margin = self.interaction.scale * self.margin
            margin *= tf.cast(training or False, scores.dtype)
            penalties = tf.where(positives >= 0, -margin, 0)
            return search.add_columns(scores, tf.maximum(positives, 0), penalties)

        return at_positions(score_with_margin, inputs, class_ids)

    def over_classes(self, encodings: Tensor) -> ClassProducts:
        rule = "`margin` must be 0 for a loss over classes in blocks."
        _checks.require(not self.margin, rule, f"margin={self.margin}")
        return super().over_classes(encodings)


class _MLPHead(Head):
    _interaction_class: type[MLPInteraction]

    def __init__(
        self,
        classes: Classes,
        units: Sequence[int] = (256, 256),
        activation: Choice = "relu",
        dropout: float = 0.0,
        add_dot_product: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Any,
    ):
        interaction = self._interaction_class(
            units=units,
            activation=activation,
            dropout=dropout,
            add_dot_product=add_dot_product,
            kernel_initializer=kernel_initializer,
            seed=seed,
            dtype=kwargs.get("dtype"),
        )
        super().__init__(classes, interaction, **kwargs)

    @classmethod
    def from_dense(cls, layer: keras.layers.Dense, **kwargs: Any) -> Head:
        return super().from_dense(layer, add_dot_product=True, **kwargs)


@_registry.register("head")
class LatentCrossHead(_MLPHead):
    r"""Latent cross of encoding and class encoding, then an MLP (LC+MLP).

    $$s_i = \mathrm{MLP}\left(h \odot (1 + c_i)\right)$$

    Source: Rank4Class, section 4.2; latent cross: Beutel et al. 2018.

    Time is O(batch n d u) for a first hidden layer of width u. Memory is O(batch n u)
    for the widest hidden layer, with n = 1,000 if there are more than two thousand
    classes. The arguments are those of `Head`, with classes as wide as the encodings,
    and `MLPInteraction`.

    Example:
        >>> LatentCrossHead(28, units=(64, 64)).compute_output_shape((None, 16))
        (None, 28)
    """

    _interaction_class = LatentCrossInteraction


@_registry.register("head")
class ConcatHead(_MLPHead):
    r"""Encoding and class encoding side by side, then an MLP (Concat+MLP).

    $$s_i = \mathrm{MLP}\left([h; c_i]\right)$$

    Source: Rank4Class, section 4.2.

    Time and memory are as in `LatentCrossHead`, without the factor d. The arguments are
    those of `Head` and `MLPInteraction`.

    Example:
        >>> ConcatHead(28, units=(64, 64)).compute_output_shape((None, 16))
        (None, 28)
    """

    _interaction_class = ConcatInteraction


def get_head(identifier: str | dict | Head, **kwargs: Any) -> Head:
    """Returns a head by name with its arguments, from a serialized config, or as it is.

    Example:
        >>> get_head("latent_cross", classes=28).num_classes
        28
    """
    return _registry.get("head", Head, identifier, **kwargs)
