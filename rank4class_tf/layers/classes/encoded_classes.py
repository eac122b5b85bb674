"""EncodedClasses."""

import copy
from typing import Any

import tensorflow as tf

from rank4class_tf import _keras
from rank4class_tf._keras import keras
from rank4class_tf.layers.classes import _features
from rank4class_tf.layers.classes.class_table import Classes


@_keras.register
class EncodedClasses(Classes):
    """Classes whose features, such as descriptions, are encoded by an encoder.

    With descriptions, attributes or places in a taxonomy, classes with few examples learn from
    similar classes, and classes that training has never seen can be scored.

    Source: Rank4Class, section 6, which suggests classes with metadata as future work.

    A head encodes each class once in a step, for all examples; a head that scores only sampled
    classes encodes only these. The features are part of the config, and so of a saved model. For
    inference, `to_table` encodes all classes once. XLA does not support strings: use token ids or
    similar as features there.

    Args:
        features: features of all classes: an array, a list of strings, or a dict or tuple of such,
            each with a row for each class.
        encoder: a Keras layer or model that maps them to `[n, width]`; it trains with the rest
            unless its `trainable` is False. It may also be the encoder of the examples; a `.keras`
            file then needs Keras 3, since Keras 2 loads two layers in place of one.
        **kwargs: arguments of Keras, such as `name`.

    Raises:
        ValueError: if numbers of rows differ, or the encoder does not give a row for each class.

    Example:
        >>> classes = EncodedClasses(tf.eye(3), keras.layers.Dense(8))
        >>> classes.build((None, 8))
        >>> classes.add([[0.0, 0.5, 0.5]])
        >>> classes.num_classes, classes.rows().shape
        (4, TensorShape([4, 8]))
    """

    def __init__(self, features: Any, encoder: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._features = _features.Features(features)
        if isinstance(encoder, dict):
            # Keras changes the config that it reads.
            encoder = _keras.deserialized(copy.deepcopy(encoder))
        self.encoder = _keras.checked_layer("encoder", encoder)
        tensors = tf.nest.flatten(self.features)
        self.supports_jit = all(x.dtype != tf.string for x in tensors)  # Keras 3 asks for it.

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return self._features.num_classes

    @property
    def width(self) -> int:
        """The width of an encoding, once built."""
        return self._width

    @property
    def features(self) -> Any:
        """The features of all classes."""
        return self._features.tensors

    def build(self, input_shape: Any) -> None:
        """Builds the encoder; its width may differ from the width of the encodings to score."""
        with tf.init_scope():
            shape = self.encoder(self._features.rows([0])).shape
        if shape.rank != 2 or shape[0] != 1 or shape[1] is None:
            raise ValueError(
                "`encoder` must map features of m classes to [m, width]. "
                f"Received: shape {shape} for one class."
            )
        self._width = shape[1]
        self.built = True

    def rows(self, ids: Any = None) -> tf.Tensor:
        """Encodings of some classes or of all."""
        if ids is None:
            rows = self.encoder(self._features.rows())
            return tf.ensure_shape(rows, [self.num_classes, self.width])
        ids = tf.convert_to_tensor(ids)
        rows = self.encoder(self._features.rows(tf.reshape(ids, [-1])))
        rows = tf.reshape(rows, tf.concat([tf.shape(ids), [self.width]], axis=0))
        return tf.ensure_shape(rows, [*ids.shape, self.width])

    def add(self, features: Any) -> None:
        """Adds classes after the others; they are scored from now on, without any training.

        If the model was compiled or called through `predict`, compile it again, as after a change
        of `trainable`.

        Args:
            features: features of the new classes, as in the constructor.
        """
        self._features = self._features.added(features)

    def get_config(self) -> dict:
        """Returns the constructor arguments, with the features of all current classes."""
        return {
            **super().get_config(),
            "features": _features.to_config(self.features),
            "encoder": keras.utils.serialize_keras_object(self.encoder),
        }

    @classmethod
    def from_config(cls, config: dict) -> "EncodedClasses":
        """Builds the layer that `get_config` describes."""
        return cls(**{**config, "features": _features.from_config(config["features"])})
