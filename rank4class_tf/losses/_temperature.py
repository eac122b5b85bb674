"""Temperatures of losses: numbers, or what holds a number that changes in training."""

from typing import Any, TypeAlias

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf.losses.temperature_annealing import TemperatureAnnealing

Temperature: TypeAlias = float | TemperatureAnnealing | Any  # A tf.Variable.


def check_temperature(value: Any) -> Temperature:
    """Raises unless `value` is a number > 0, a `TemperatureAnnealing` or a scalar variable."""
    if isinstance(value, TemperatureAnnealing):
        return value
    if isinstance(value, tf.Variable):
        if value.shape.rank != 0 or not value.dtype.is_floating:
            raise ValueError(
                "`temperature` must be a scalar where it is a variable. "
                f"Received: {value.dtype.name} of shape {value.shape}."
            )
        return value
    return _checks.positive_float("temperature", value)


def present_temperature(
    temperature: Temperature, dtype: tf.DType, with_gradient: bool = False
) -> Any:
    """The temperature of this step: a number, or a tensor of a dtype."""
    if isinstance(temperature, TemperatureAnnealing):
        temperature = temperature.value
    if not isinstance(temperature, tf.Variable):
        return temperature
    temperature = tf.cast(temperature, dtype)
    return temperature if with_gradient else tf.stop_gradient(temperature)
