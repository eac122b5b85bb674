"""TopClasses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _config, _keras
from rank4class_tf._types import TensorLike


@_keras.register
class TopClasses(keras.layers.Layer):
    r"""The last layer of a served model: the k best classes, with names and probabilities.

        best = TopClasses(3, class_names, rank4class_tf.calibrate(model, validation))
        inputs = keras.Input(shape)
        served = keras.Model(inputs, best(model(inputs)))

    `rank4class_tf.export_top_k` writes a SavedModel that does the same without this package.

    Args:
        k: how many classes, >= 1.
        class_names: None, or the name of each class.
        probabilities: None, or a layer that maps scores to probabilities: the result of
            `calibrate`, or `loss.probabilities`.
        prediction_sets: None, or the result of `rank4class_tf.conformalize`.
        **kwargs: arguments of Keras, such as `name`. `dtype` is float32 unless given.

    Input: scores `[batch, n]`, n >= k. Output: a dict, the best class first, of

    - `scores`: `[batch, k]`,
    - `class_ids`: int32 `[batch, k]`,
    - `class_names`: strings `[batch, k]`, if there are names,
    - `probabilities`: `[batch, k]`, with `probabilities`,
    - `set_sizes`: int32 `[batch]`, with `prediction_sets`: how many of the best classes are in the
      set. If it exceeds k, the output does not show all of the set.

    Raises:
        ValueError: if `k` is not in [1, n], or there are more or fewer names than classes.

    Example:
        >>> from rank4class_tf.layers import Probabilities
        >>> best = TopClasses(2, ["cat", "dog", "eel"], Probabilities())
        >>> result = best(tf.math.log([[0.25, 0.625, 0.125]]))
        >>> result["class_names"].numpy(), result["probabilities"].numpy().round(3)
        (array([[b'dog', b'cat']], dtype=object), array([[0.625, 0.25 ]], dtype=float32))
    """

    def __init__(
        self,
        k: int,
        class_names: Sequence[str] | None = None,
        probabilities: Any = None,
        prediction_sets: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"dtype": "float32", **kwargs})
        self.supports_jit = class_names is None  # Keras 3 then doesn't have XLA compile strings.
        self.k = _checks.positive_int("k", k)
        self.class_names = None if class_names is None else as_names(class_names)
        self.probabilities = _checks.layer_or_none("probabilities", probabilities)
        self.prediction_sets = _checks.layer_or_none("prediction_sets", prediction_sets)

    def build(self, input_shape: Any) -> None:
        """Checks the number of classes."""
        if input_shape[-1] is not None:
            check_classes(self.k, self.class_names, input_shape[-1])
        self.built = True

    def call(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores -> the best classes."""
        result = self.best(inputs, self.k)
        if self.class_names is not None:
            result["class_names"] = tf.gather(tf.constant(self.class_names), result["class_ids"])
        return result

    def best(self, scores: tf.Tensor, k: TensorLike) -> dict[str, tf.Tensor]:
        """The outputs without the names, for any k, an int or a scalar tensor."""
        scores = tf.cast(scores, self.compute_dtype)
        values, class_ids = tf.math.top_k(scores, k)
        result = {"scores": values, "class_ids": class_ids}
        if self.probabilities is not None:
            result["probabilities"] = tf.gather(self.probabilities(scores), class_ids, batch_dims=1)
        if self.prediction_sets is not None:
            in_set = tf.cast(self.prediction_sets(scores), tf.int32)
            result["set_sizes"] = tf.reduce_sum(in_set, axis=-1)
        return result

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), **_config.constructor_arguments(self, TopClasses)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the layer that `get_config` describes."""
        return cls(**_config.deserialized(config))


def as_names(class_names: Any) -> list[str]:
    """Names of classes, in a list, an array or a tensor, as str."""
    if isinstance(class_names, str | bytes | Mapping) or not isinstance(class_names, Iterable):
        raise ValueError(f"`class_names` must be a list of names. Received: {class_names!r}.")
    names = (name.numpy() if tf.is_tensor(name) else name for name in class_names)
    return [tf.compat.as_str_any(name) for name in names]


def check_classes(k: int, class_names: Sequence[str] | None, num_classes: int) -> None:
    """Raises unless there are at least k classes, and a name for each if there are names."""
    if k > num_classes:
        raise ValueError(f"`k` must be in [1, {num_classes}]. Received: k={k}.")
    if class_names is not None and len(class_names) != num_classes:
        raise ValueError(
            f"`class_names` must have a name for each of the {num_classes} classes. "
            f"Received: {len(class_names)} names."
        )
