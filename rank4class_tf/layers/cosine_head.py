"""CosineHead."""

import warnings
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf import top as _top
from rank4class_tf.layers._base import Head
from rank4class_tf.layers.interactions import CosineInteraction


@_registry.register("head")
class CosineHead(Head):
    r"""The cosine of the angle between encoding and class encoding, times a scale.

    $$s_i = a \left(\frac{h^\top c_i}{\|h\| \|c_i\|} - m \, y_i\right)$$

    The margin m makes training ask for more than the highest score: as losses for face recognition
    have it, the score of an example's class, y_i = 1, is lowered. It takes effect in training and
    where the head is called with class ids, which `keras.Sequential` does not do.

    Source: Wang et al. 2018, "CosFace: Large Margin Cosine Loss for Deep Face Recognition".

    Args:
        classes: a number of classes, for a `ClassTable`, or a layer of classes, as wide as the
            encodings.
        scale: a, > 0.
        margin: m, in [0, 1].
        **kwargs: Keras's own, such as `name`.

    Input: `[batch, d]`, and class ids where there is a margin. Output: `[batch, n]`.

    Raises:
        ValueError: if `classes` is no layer and not a positive integer, a number is out of range,
            the input is not `[batch, d]`, widths differ, or a class id does not exist (where
            XLA compiles this the scores of the example are NaN).

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
        positives, invalid = _labels.padded_ids(class_ids, self.num_classes, scores, "class_ids")
        positives = _labels.distinct_ids(positives)
        lowered = self.interaction.scale * self.margin * tf.cast(training or False, scores.dtype)
        lowered = tf.where(positives >= 0, -lowered, 0)
        scores = _top.add_columns(scores, tf.maximum(positives, 0), lowered)
        return tf.where(invalid[:, tf.newaxis], tf.constant(float("nan"), scores.dtype), scores)

    def get_config(self) -> dict:
        """Returns the constructor arguments."""
        return {**super().get_config(), "margin": self.margin}
