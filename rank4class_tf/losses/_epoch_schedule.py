"""What the callbacks share that change a number of a loss from epoch to epoch."""

from typing import Any, Self

import tensorflow as tf
from tensorflow import keras


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
