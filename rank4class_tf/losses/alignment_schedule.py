"""AlignmentSchedule."""

from typing import Any

from rank4class_tf import _checks, _keras
from rank4class_tf.losses._epoch_schedule import EpochSchedule


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
