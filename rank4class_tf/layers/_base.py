"""What all heads share: classes, shapes and configuration."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf.layers.classes import ClassTable, as_classes
from rank4class_tf.layers.interactions import Interaction, get_interaction


@_keras.register
class Head(keras.layers.Layer):
    """Scores all classes by an interaction of the encoding with that of each class.

    The heads with names of their own are this with an interaction of this package; a user's own
    interaction goes here.

    Args:
        classes: a number of classes, for a `ClassTable`, or a layer of classes.
        interaction: a `rank4class_tf.layers.Interaction`, or the name of one of this package's.
        **kwargs: Keras's own, such as `name`.

    Input: `[batch, d]`. Output: `[batch, num_classes]`.

    Raises:
        ValueError: if `classes` is no layer and not a positive integer, or the input is not
            `[batch, d]`.

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
        """A head that starts from a trained `keras.layers.Dense`, with equal scores.

        Args:
            layer: a built `Dense` without activation.
            **kwargs: arguments of the constructor, but for `classes`.

        Raises:
            ValueError: if the layer is another, or the interaction cannot start as a dot product.
        """
        classes = ClassTable.from_dense(layer)
        head = cls(classes, **kwargs)
        head.build((None, classes.width))
        head.interaction.start_as_dot_product()
        return head

    def with_classes(self, classes: Any) -> "Head":
        """A head of the same interaction, whose weights both share, over other classes.

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


class MLPHead(Head):
    """Base of the heads with an MLP."""

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
        """A head that starts from a trained `keras.layers.Dense`, with equal scores.

        It has `add_dot_product`, and an MLP that scores 0 at first.

        Args:
            layer: a built `Dense` without activation.
            **kwargs: arguments of the constructor, but for `classes`.

        Raises:
            ValueError: if the layer is another.
        """
        return super().from_dense(layer, add_dot_product=True, **kwargs)
