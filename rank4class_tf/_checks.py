"""Checks of constructor arguments; the errors name the argument, the rule and the value."""

import math
import numbers
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _keras
from rank4class_tf._tf.raising import same_sizes


def is_array(value: Any) -> bool:
    """Whether a value is a tensor, an array or a list, whose numbers are not looked at."""
    return tf.is_tensor(value) or isinstance(value, np.ndarray | list | tuple)


def positive_int(name: str, value: Any) -> int:
    """Raises unless `value` is an integer >= 1; returns it as an int."""
    return int(_number(name, value, numbers.Integral, lambda v: v >= 1, "a positive integer"))


def non_negative_int(name: str, value: Any) -> int:
    """Raises unless `value` is an integer >= 0; returns it as an int."""
    return int(_number(name, value, numbers.Integral, lambda v: v >= 0, "an integer >= 0"))


def non_negative_int_or_all(name: str, value: Any) -> Any:
    """Raises unless `value` is an integer >= 0 or "all"; returns it."""
    if isinstance(value, str) and value == "all":
        return value
    rule = "an integer >= 0 or 'all'"
    return int(_number(name, value, numbers.Integral, lambda v: v >= 0, rule))


def positive_float(name: str, value: Any) -> float:
    """Raises unless `value` is a finite number > 0; returns it as a float."""
    return float(_number(name, value, numbers.Real, lambda v: v > 0, "a finite number > 0"))


def positive_or_tensor(name: str, value: Any) -> Any:
    """Raises unless `value` is a finite number > 0; a tensor, array or list passes unread."""
    return value if is_array(value) else positive_float(name, value)


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


def positive_fraction(name: str, value: Any) -> float:
    """Raises unless `value` is a number in (0, 1]; returns it as a float."""
    return float(_number(name, value, numbers.Real, lambda v: 0 < v <= 1, "a number in (0, 1]"))


def inner_fraction(name: str, value: Any) -> float:
    """Raises unless `value` is a number in (0, 1); returns it as a float."""
    return float(_number(name, value, numbers.Real, lambda v: 0 < v < 1, "a number in (0, 1)"))


def seed(value: Any) -> int:
    """Raises unless `value` is an integer that NumPy and TensorFlow both take; returns it."""
    rule = "an integer in [0, 2**32)"
    return int(_number("seed", value, numbers.Integral, lambda v: 0 <= v < 2**32, rule))


def flag(name: str, value: Any) -> bool:
    """Raises unless `value` is True or False; returns it as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}.")
    return bool(value)


def layer_or_none(name: str, value: Any) -> Any:
    """Raises unless `value` is None or can be called, as a layer; returns it."""
    if value is not None and not callable(value):
        raise ValueError(f"`{name}` must be a layer or None. Received: {name}={value!r}.")
    return value


def string_or_none(name: str, value: Any) -> str | None:
    """Raises unless `value` is None or a string; returns it."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"`{name}` must be a string or None. Received: {name}={value!r}.")
    return value


def mask(value: Any, scores: tf.Tensor) -> tf.Tensor | None:
    """Raises unless a mask is None or booleans of the shape of the scores; returns a tensor."""
    if value is None:
        return None
    value = tf.convert_to_tensor(value)
    if not value.dtype.is_bool or not value.shape.is_compatible_with(scores.shape):
        raise ValueError(
            f"`mask` must be booleans of the shape of the scores, {scores.shape}. "
            f"Received: {value.dtype.name} {value.shape}."
        )
    return same_sizes(value, scores, "`mask` must have the shape of the scores.", axes=2)


def ids(name: str, value: Any, strings: bool = True) -> Any:
    """Raises unless ids are integers, or strings where these may be; returns a tensor."""
    if not isinstance(value, tf.RaggedTensor):
        value = tf.convert_to_tensor(value)
        if value.shape.num_elements() == 0 and value.dtype != tf.string:
            return tf.cast(value, tf.int64)  # An empty list has no kind.
    value = _keras.given_labels(value)
    if not (value.dtype.is_integer or strings and value.dtype == tf.string):
        kinds = "integers or strings" if strings else "integers"
        raise ValueError(f"`{name}` must hold {kinds}. Received: {value.dtype.name}.")
    return value


def rows_of_ids(name: str, value: Any, strings: bool = True) -> Any:
    """Raises unless ids are `[batch, E]`, dense or ragged; returns a tensor."""
    value = ids(name, value, strings)
    if value.shape.rank not in (None, 2):
        raise ValueError(f"`{name}` must have the shape [batch, E]. Received: {value.shape}.")
    return value


def one_of(name: str, value: Any, known: Collection) -> Any:
    """Raises unless `value` is in `known`; returns it."""
    if value not in known:
        raise ValueError(f"`{name}` must be one of {known}. Received: {name}={value!r}.")
    return value


def one_for_each_class(
    name: str, value: Any, is_right: Callable[[np.ndarray], Any], rule: str
) -> list[float]:
    """Raises unless `value` holds a number for each class; returns them."""
    try:
        given = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        given = np.empty([])
    if given.ndim != 1 or not is_right(given):
        raise ValueError(f"`{name}` must hold {rule}. Received: {value!r}.")
    return given.tolist()


def no_others(instance: object, options: dict[str, Any]) -> None:
    """Raises for options that the constructor of an object does not take."""
    for name, value in options.items():
        raise TypeError(
            f"`{type(instance).__name__}` has no option `{name}`. Received: {name}={value!r}."
        )


def _number(name: str, value: Any, kind: Any, is_right: Callable, rule: str) -> Any:
    """Raises unless `value` is a finite number of a kind, not a bool, that keeps a rule."""
    number = isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not is_right(value):
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}.")
    return value
