"""Checks of constructor arguments; the errors name the argument, the rule and the value."""

import math
import numbers
from collections.abc import Callable, Collection
from typing import Any


def positive_int(name: str, value: Any) -> int:
    """Raises unless `value` is an integer >= 1; returns it as an int."""
    return int(_number(name, value, numbers.Integral, lambda v: v >= 1, "a positive integer"))


def non_negative_int(name: str, value: Any) -> int:
    """Raises unless `value` is an integer >= 0; returns it as an int."""
    return int(_number(name, value, numbers.Integral, lambda v: v >= 0, "an integer >= 0"))


def positive_float(name: str, value: Any) -> float:
    """Raises unless `value` is a finite number > 0; returns it as a float."""
    return float(_number(name, value, numbers.Real, lambda v: v > 0, "a finite number > 0"))


def non_negative_float(name: str, value: Any) -> float:
    """Raises unless `value` is a finite number >= 0; returns it as a float."""
    return float(_number(name, value, numbers.Real, lambda v: v >= 0, "a finite number >= 0"))


def fraction(name: str, value: Any) -> float:
    """Raises unless `value` is a number in [0, 1]; returns it as a float."""
    return float(_number(name, value, numbers.Real, lambda v: 0 <= v <= 1, "a number in [0, 1]"))


def fraction_below(name: str, value: Any, bound: float) -> float:
    """Raises unless `value` is a number in [0, bound); returns it as a float."""
    rule = f"a number in [0, {bound:g})"
    return float(_number(name, value, numbers.Real, lambda v: 0 <= v < bound, rule))


def inner_fraction(name: str, value: Any) -> float:
    """Raises unless `value` is a number in (0, 1); returns it as a float."""
    return float(_number(name, value, numbers.Real, lambda v: 0 < v < 1, "a number in (0, 1)"))


def seed(value: Any) -> int:
    """Raises unless `value` is an integer that NumPy and TensorFlow both take; returns it."""
    rule = "an integer in [0, 2**32)"
    return int(_number("seed", value, numbers.Integral, lambda v: 0 <= v < 2**32, rule))


def one_of(name: str, value: Any, known: Collection) -> Any:
    """Raises unless `value` is in `known`; returns it."""
    if value not in known:
        raise ValueError(f"`{name}` must be one of {known}. Received: {name}={value!r}.")
    return value


def _number(name: str, value: Any, kind: Any, is_right: Callable, rule: str) -> Any:
    """Raises unless `value` is a finite number of a kind, and no bool, that keeps a rule."""
    number = isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not is_right(value):
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}.")
    return value
