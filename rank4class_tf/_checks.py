"""Checks of constructor arguments; the errors name the argument, the rule and the value."""

import math
import numbers
from collections.abc import Collection
from typing import Any


def positive_int(name: str, value: Any) -> int:
    """Raises unless `value` is an integer >= 1; returns it as an int."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}.")
    return int(value)


def positive_float(name: str, value: Any) -> float:
    """Raises unless `value` is a finite number > 0; returns it as a float."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise ValueError(f"`{name}` must be a finite number > 0. Received: {name}={value!r}.")
    return float(value)


def one_of(name: str, value: Any, known: Collection) -> Any:
    """Raises unless `value` is in `known`; returns it."""
    if value not in known:
        raise ValueError(f"`{name}` must be one of {known}. Received: {name}={value!r}.")
    return value


def non_negative_int(name: str, value: Any) -> int:
    """Raises unless `value` is an integer >= 0; returns it as an int."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 0:
        raise ValueError(f"`{name}` must be an integer >= 0. Received: {name}={value!r}.")
    return int(value)


def fraction(name: str, value: Any) -> float:
    """Raises unless `value` is a number in [0, 1]; returns it as a float."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be a number in [0, 1]. Received: {name}={value!r}.")
    return float(value)


def non_negative_float(name: str, value: Any) -> float:
    """Raises unless `value` is a finite number >= 0; returns it as a float."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise ValueError(f"`{name}` must be a finite number >= 0. Received: {name}={value!r}.")
    return float(value)
