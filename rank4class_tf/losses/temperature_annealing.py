"""TemperatureAnnealing."""

from typing import Any

from rank4class_tf import _checks, _keras
from rank4class_tf.losses._epoch_schedule import EpochSchedule


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
