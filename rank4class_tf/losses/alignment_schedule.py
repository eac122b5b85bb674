"""AlignmentSchedule."""

from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras


@_keras.register
class AlignmentSchedule(keras.callbacks.Callback):
    r"""The weight of the alignment of a loss on ranks, for the first epochs only.

    $$\lambda_e = \lambda \, 1(e < E)$$

    in epoch e = 0, 1, ... It is a Keras callback: give it to the loss and to `fit`. Without `fit`
    the weight stays $\lambda$ until `set_epoch` is called.

    Source: Engilberge et al. 2019, "SoDeep", section 3.3.

    Args:
        weight: $\lambda$ >= 0.
        epochs: E >= 1.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> from rank4class_tf.losses import SpearmanLoss
        >>> alignment = AlignmentSchedule(weight=1.0, epochs=3)
        >>> loss = SpearmanLoss(alignment=alignment)  # and fit(..., callbacks=[alignment])
        >>> alignment.set_epoch(3)
        >>> float(alignment.value)
        0.0
    """

    def __init__(self, weight: float, epochs: int) -> None:
        super().__init__()
        self.weight = _checks.non_negative_float("weight", weight)
        self.epochs = _checks.positive_int("epochs", epochs)
        # A variable, so that a compiled training step sees it change.
        self.value = tf.Variable(self.weight, trainable=False, dtype=tf.float64)

    def set_epoch(self, epoch: int) -> None:
        """Sets the weight of an epoch, counted from 0."""
        self.value.assign(self.weight if epoch < self.epochs else 0.0)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras calls this."""
        self.set_epoch(epoch)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {"weight": self.weight, "epochs": self.epochs}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the schedule that `get_config` describes."""
        return cls(**config)
