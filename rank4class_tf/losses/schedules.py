"""Schedules."""

from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras


class EpochSchedule(keras.callbacks.Callback):
    """A number of a loss that is a function of the epoch: give it to the loss and to `fit`.

    A loss that is saved with a model keeps the number; to train the loaded model further, give
    `fit` the schedule of its own loss.
    """

    def __init__(self) -> None:
        super().__init__()
        # A variable, so that a compiled training step sees it change.
        self.value = tf.Variable(self.at(0), trainable=False, dtype=tf.float64)

    def at(self, epoch: int) -> float:
        """The number in an epoch, counted from 0."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Sets the number to that of an epoch, counted from 0."""
        self.value.assign(self.at(epoch))

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras calls this."""
        self.set_epoch(epoch)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments and the number."""
        return {"value": float(self.value.numpy())}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the schedule that `get_config` describes."""
        arguments = {name: value for name, value in config.items() if name != "value"}
        schedule = cls(**arguments)
        if "value" in config:
            schedule.value.assign(config["value"])
        return schedule


@_keras.register
class AlignmentSchedule(EpochSchedule):
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
        self.weight = _checks.non_negative_float("weight", weight)
        self.epochs = _checks.positive_int("epochs", epochs)
        super().__init__()

    def at(self, epoch: int) -> float:
        """The weight in an epoch, counted from 0."""
        return self.weight if epoch < self.epochs else 0.0

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments and the value."""
        return {**super().get_config(), "weight": self.weight, "epochs": self.epochs}


@_keras.register
class TemperatureAnnealing(EpochSchedule):
    r"""A temperature of a loss that changes exponentially from epoch to epoch.

    $$T_e = T_0 (T_1 / T_0)^{\min(e / E, 1)}$$

    in epoch e = 0, 1, ... It is a Keras callback: give it to the loss and to `fit`. Without `fit`
    the temperature stays at $T_0$ until `set_epoch` is called. A model that is trained further with
    `fit(..., initial_epoch=e)` goes on at $T_e$.

    Rankmax's authors found that annealing does not improve a film recommender, while the $\alpha$
    of Rankmax, one for each example, does.

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
        self.initial = _checks.positive_float("initial", initial)
        self.final = _checks.positive_float("final", final)
        self.epochs = _checks.positive_int("epochs", epochs)
        super().__init__()

    def at(self, epoch: int) -> float:
        """The temperature in an epoch, counted from 0."""
        share = min(epoch / self.epochs, 1.0)
        return self.initial * (self.final / self.initial) ** share

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments and the value."""
        return {
            **super().get_config(),
            "initial": self.initial,
            "final": self.final,
            "epochs": self.epochs,
        }
