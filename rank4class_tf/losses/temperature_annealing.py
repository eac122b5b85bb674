"""TemperatureAnnealing."""

from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras


@_keras.register
class TemperatureAnnealing(keras.callbacks.Callback):
    r"""A temperature for `SoftmaxLoss` that changes exponentially from epoch to epoch.

    $$T_e = T_0 (T_1 / T_0)^{\min(e / E, 1)}$$

    in epoch e = 0, 1, ... It is a Keras callback: give it to the loss and to `fit`. Without `fit`
    the temperature stays at $T_0$ until `set_epoch` is called. A model that is trained further with
    `fit(..., initial_epoch=e)` goes on at $T_e$.

    Rankmax's authors found that annealing does not improve a recommender of films, which is what
    the $\alpha$ of Rankmax, one for each example, does.

    Source: Rankmax, section 4; Jang et al. 2017.

    Args:
        initial: $T_0$ > 0.
        final: $T_1$ > 0.
        epochs: E >= 1, the epoch at which $T_1$ is reached.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> from rank4class_tf.losses import SoftmaxLoss
        >>> annealing = TemperatureAnnealing(initial=4.0, final=1.0, epochs=2)
        >>> loss = SoftmaxLoss(temperature=annealing)  # and fit(..., callbacks=[annealing])
        >>> annealing.set_epoch(1)
        >>> float(annealing.value)
        2.0
    """

    def __init__(self, initial: float, final: float, epochs: int) -> None:
        super().__init__()
        self.initial = _checks.positive_float("initial", initial)
        self.final = _checks.positive_float("final", final)
        self.epochs = _checks.positive_int("epochs", epochs)
        # A variable, so that a compiled training step sees it change.
        self.value = tf.Variable(self.initial, trainable=False, dtype=tf.float64)

    def set_epoch(self, epoch: int) -> None:
        """Sets the temperature of an epoch, counted from 0."""
        share = min(epoch / self.epochs, 1.0)
        self.value.assign(self.initial * (self.final / self.initial) ** share)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras calls this."""
        self.set_epoch(epoch)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {"initial": self.initial, "final": self.final, "epochs": self.epochs}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the schedule that `get_config` describes."""
        return cls(**config)
