"""Heads: layers that score all classes, by an interaction of the encoding with each of them."""

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _registry
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf import search
from rank4class_tf.layers.classes import ClassScores, ClassTable, as_classes
from rank4class_tf.layers.interactions import (
    BilinearInteraction,
    ConcatInteraction,
    CosineInteraction,
    DotProductInteraction,
    Interaction,
    LatentCrossInteraction,
    get_interaction,
)


@_keras.register
class Head(keras.layers.Layer):
    """Scores all classes, through an interaction between the encoding and each class.

    The other heads are this one with an interaction of this package. Use `Head` itself with your
    own interaction.

    Args:
        classes: a number of classes, for a `ClassTable`, or a layer of classes.
        interaction: an `Interaction`, or the name of one of this package's.
        **kwargs: arguments of Keras, such as `name`.

    Input: `[batch, d]`. Output: `[batch, num_classes]`.

    Raises:
        ValueError: if `classes` is neither a layer of classes nor a positive integer, the input is
            not `[batch, d]`, or the widths of encodings and classes differ where the interaction
            needs equal ones.

    Example:
        >>> Head(28, "bilinear").compute_output_shape((None, 16))
        (None, 28)
    """

    # Arguments of the `ClassTable` that a number of classes becomes.
    _table_arguments: dict[str, Any] = {}

    def __init__(self, classes: Any, interaction: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.classes = as_classes(classes, dtype=self.dtype_policy, **self._table_arguments)
        options = {"dtype": self.dtype_policy} if isinstance(interaction, str) else {}
        self.interaction = get_interaction(interaction, **options)

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return self.classes.num_classes

    @classmethod
    def from_dense(cls, layer: Any, **kwargs: Any) -> "Head":
        """Returns a head that starts with the scores of a trained `keras.layers.Dense`.

        Args:
            layer: a built `Dense` without activation.
            **kwargs: arguments of the constructor, except `classes`.

        Raises:
            ValueError: if the layer is not such a `Dense`, or the interaction cannot start as a dot
                product.
        """
        classes = ClassTable.from_dense(layer)
        head = cls(classes, **kwargs)
        head.build((None, classes.width))
        head.interaction.start_as_dot_product()
        return head

    def with_classes(self, classes: Any) -> "Head":
        """Returns a head over other classes that shares this head's interaction and its weights.

        Args:
            classes: a layer of classes, as wide as those here. `head.classes.to_table()` keeps the
                encodings for inference; classes that training has not seen are scored zero-shot.
        """
        return Head(classes, self.interaction, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        """Creates the weights."""
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                "`inputs` must have the shape [batch, d] with d known. "
                f"Received: {tuple(input_shape)}."
            )
        if not self.classes.built:
            self.classes.build(input_shape)
        self._build_head(int(input_shape[-1]))
        self.built = True

    def _build_head(self, width: int) -> None:
        """Creates the weights that are not of the classes, for encodings `[batch, width]`."""
        if not self.interaction.built:
            self.interaction.build([(None, width), (self.num_classes, self.classes.width)])

    def call(self, inputs: Any) -> tf.Tensor:
        """Scores every class."""
        if not tf.as_dtype(inputs.dtype).is_floating:
            inputs = tf.cast(inputs, self.compute_dtype)
        scores = self.interaction([inputs, tf.cast(self.classes.rows(), self.compute_dtype)])
        biases = self.classes.biases()
        return scores if biases is None else scores + tf.cast(biases, scores.dtype)

    def over_classes(self, encodings: Any) -> Any:
        """Prepares the scores of all classes for a loss that computes them in blocks.

        A loss of `rank4class_tf.losses` takes the result in place of scores, with class ids as
        labels. It computes the scores block by block, and again for the gradient, so
        `[batch, num_classes]` is never in memory. The scores are float32 in mixed precision too.

        Args:
            encodings: `[batch, d]`.

        Raises:
            ValueError: if the interaction is not the dot product or the cosine.

        Example:
            >>> from rank4class_tf.losses import SoftmaxLoss
            >>> head = DotProductHead(1000)
            >>> loss = SoftmaxLoss()([3, 7], head.over_classes(tf.zeros([2, 16])))
            >>> float(loss)  # log(1000)
            6.907755...
        """
        encodings, interaction = tf.convert_to_tensor(encodings), self.interaction
        is_cosine = isinstance(interaction, CosineInteraction)
        if not is_cosine and not isinstance(interaction, DotProductInteraction):
            raise ValueError(
                "`interaction` must be the dot product or the cosine for a loss over classes in "
                f"blocks. Received: {type(interaction).__name__}."
            )
        if not self.built:
            self.build(encodings.shape)
        scores = ClassScores(self.classes, normalize=is_cosine)
        return scores.over_classes(encodings, interaction.scale if is_cosine else 1.0)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        """Returns `(batch, num_classes)`."""
        return (input_shape[0], self.num_classes)

    def get_config(self) -> dict:
        """Returns the constructor arguments."""
        config = super().get_config()
        config["classes"] = keras.utils.serialize_keras_object(self.classes)
        names = inspect.signature(type(self).__init__).parameters
        if "interaction" in names:
            config["interaction"] = keras.utils.serialize_keras_object(self.interaction)
        else:
            options = self.interaction.get_config()
            config |= {name: options[name] for name in names if name in options}
        return config


@_registry.register("head")
class DotProductHead(Head):
    r"""The usual last layer of a classifier: a dot product with each class encoding.

    $$s_i = c_i^\top h + b_i$$

    Source: Rank4Class, section 3.2.

    Args:
        classes: as in `Head`, as wide as the encodings. If it is a number, the table has biases.
        **kwargs: arguments of Keras, such as `name`.

    Example:
        >>> DotProductHead(28).compute_output_shape((None, 16))
        (None, 28)
    """

    _table_arguments = {"use_bias": True}

    def __init__(self, classes: Any, **kwargs: Any) -> None:
        interaction = DotProductInteraction(dtype=kwargs.get("dtype"))
        super().__init__(classes, interaction, **kwargs)


@_registry.register("head")
class BilinearHead(Head):
    r"""A bilinear form of encoding and class encoding, which may differ in width.

    $$s_i = h^\top W c_i + b_i$$

    Args:
        classes: as in `Head`. If it is a number, the table has biases.
        kernel_initializer: initializer of W, `[d, width of the classes]`.
        kernel_regularizer: None or a regularizer of W.
        **kwargs: arguments of Keras, such as `name`.

    Example:
        >>> BilinearHead(28).compute_output_shape((None, 16))
        (None, 28)
    """

    _table_arguments = {"use_bias": True}

    def __init__(
        self,
        classes: Any,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        interaction = BilinearInteraction(
            kernel_initializer, kernel_regularizer, dtype=kwargs.get("dtype")
        )
        super().__init__(classes, interaction, **kwargs)


@_registry.register("head")
class CosineHead(Head):
    r"""The cosine of the angle between encoding and class encoding, times a scale.

    $$s_i = a \left(\frac{h^\top c_i}{\|h\| \|c_i\|} - m \, y_i\right)$$

    With a margin m > 0, training lowers the score of an example's own class, y_i = 1, so that it
    must exceed the other scores by more. Losses for face recognition do the same. The margin takes
    effect only in training, and only if the head is called with class ids, which
    `keras.Sequential` does not do.

    Source: Wang et al. 2018, "CosFace: Large Margin Cosine Loss for Deep Face Recognition".

    Args:
        classes: as in `Head`, as wide as the encodings.
        scale: a, > 0.
        margin: m, in [0, 1].
        **kwargs: arguments of Keras, such as `name`.

    Input: `[batch, d]`, and class ids if there is a margin. Output: `[batch, num_classes]`.

    Raises:
        ValueError: as for `Head`; if `scale` or `margin` is out of range; or if a class id does
            not exist. Under XLA, which cannot raise errors, its scores become NaN instead.

    Example:
        >>> head = CosineHead(28, scale=30.0, margin=0.3)
        >>> head(tf.ones([2, 16]), class_ids=[3, 27], training=True).shape
        TensorShape([2, 28])
    """

    def __init__(
        self, classes: Any, scale: float = 16.0, margin: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(classes, CosineInteraction(scale, dtype=kwargs.get("dtype")), **kwargs)
        self.margin = _checks.fraction("margin", margin)

    def call(self, inputs: Any, class_ids: Any = None, training: Any = None) -> tf.Tensor:
        """Scores every class.

        Args:
            inputs: encodings `[batch, d]`.
            class_ids: None, or the classes of each example: `[batch]`, `[batch, 1]` or `[batch, P]`
                padded with -1.
            training: whether the margin counts.
        """
        scores = super().call(inputs)
        if class_ids is None:
            if training and self.margin:
                warnings.warn(
                    f"`margin`={self.margin} has no effect without class ids: call the head with "
                    "`class_ids=`, in a functional model.",
                    stacklevel=2,
                )
            return scores
        positives, scores = _labels.padded_ids(class_ids, self.num_classes, scores, "class_ids")
        positives = _labels.distinct_ids(positives)
        lowered = self.interaction.scale * self.margin * tf.cast(training or False, scores.dtype)
        lowered = tf.where(positives >= 0, -lowered, 0)
        return search.add_columns(scores, tf.maximum(positives, 0), lowered)

    def over_classes(self, encodings: Any) -> Any:
        """As in `Head`; raises a `ValueError` if there is a margin."""
        if self.margin:
            raise ValueError(
                "`margin` must be 0 for a loss over classes in blocks. "
                f"Received: margin={self.margin}."
            )
        return super().over_classes(encodings)

    def get_config(self) -> dict:
        """Returns the constructor arguments."""
        return {**super().get_config(), "margin": self.margin}


class _MLPHead(Head):
    """Base of the heads with an MLP, whose arguments are those of their `MLPInteraction`."""

    _interaction_class: type[Interaction]

    def __init__(
        self,
        classes: Any,
        units: Sequence[int] = (256, 256),
        activation: str | Callable = "relu",
        dropout: float = 0.0,
        layer_norm: bool = False,
        add_dot_product: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        interaction = self._interaction_class(
            units=units,
            activation=activation,
            dropout=dropout,
            layer_norm=layer_norm,
            add_dot_product=add_dot_product,
            kernel_initializer=kernel_initializer,
            kernel_regularizer=kernel_regularizer,
            seed=seed,
            dtype=kwargs.get("dtype"),
        )
        super().__init__(classes, interaction, **kwargs)

    @classmethod
    def from_dense(cls, layer: Any, **kwargs: Any) -> "Head":
        """Returns a head that starts with the scores of a trained `keras.layers.Dense`.

        It has `add_dot_product`, and an MLP that scores 0 at first.

        Args:
            layer: a built `Dense` without activation.
            **kwargs: arguments of the constructor, except `classes`.

        Raises:
            ValueError: if the layer is not such a `Dense`.
        """
        return super().from_dense(layer, add_dot_product=True, **kwargs)


@_registry.register("head")
class LatentCrossHead(_MLPHead):
    r"""Latent cross of encoding and class encoding, then an MLP (LC+MLP).

    $$s_i = \mathrm{MLP}\left(h \odot (1 + c_i)\right)$$

    Source: Rank4Class, section 4.2; latent cross: Beutel et al. 2018.

    Time is O(batch n d u) for a first hidden layer of width u. Memory is O(batch n u) for the
    widest hidden layer. Large numbers of pairs `[batch, n, d]` are not formed, and more than two
    thousand classes are scored in blocks, as `MLPInteraction` explains.

    Args:
        classes: as in `Head`, as wide as the encodings.
        units, ..., seed: as in `MLPInteraction`.
        **kwargs: arguments of Keras, such as `name`.

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

    The first layer acts on each half separately, so that the pairs are formed only after it. Time
    and memory are O(batch n u) for the widest hidden layer u. More than two thousand classes are
    scored in blocks, as `MLPInteraction` explains.

    Args:
        classes: as in `Head`.
        units, ..., seed: as in `MLPInteraction`.
        **kwargs: arguments of Keras, such as `name`.

    Example:
        >>> ConcatHead(28, units=(64, 64)).compute_output_shape((None, 16))
        (None, 28)
    """

    _interaction_class = ConcatInteraction


def get_head(identifier: Any, **kwargs: Any) -> Head:
    """Returns a head by name, such as `"latent_cross"`.

    Args:
        identifier: a name, a serialized config, or a head, which is returned as it is.
        **kwargs: constructor arguments, with a name only.

    Raises:
        ValueError: if the name is unknown; the error lists the known ones.

    Example:
        >>> get_head("latent_cross", classes=28).num_classes
        28
    """
    return _registry.get("head", Head, identifier, **kwargs)
