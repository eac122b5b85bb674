"""Argument checks that return the value; `_lists.labels` checks labels and scores."""

import importlib
import math
import numbers
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import Changing


def require(is_right: object, rule: str, received: object) -> None:
    """Raises `ValueError` for a bad argument; `received` is or describes its value."""
    if not is_right:
        text = received if isinstance(received, str) else repr(received)
        raise ValueError(f"{rule} Received: {text}.")


def _require_argument(is_right: bool, rule: str, name: str, value: Any) -> None:
    """Raises `ValueError`, with the name and value, unless an argument is right."""
    if not is_right:
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}.")


def _number_check(
    kind: type, rule: str, keeps_rule: Callable
) -> Callable[[str, Any], Any]:
    """A check that a number is a finite int or float, not bool, and keeps a rule."""

    def check(name: str, value: Any) -> Any:
        is_kind = isinstance(value, numbers.Integral if kind is int else numbers.Real)
        is_number = is_kind and not isinstance(value, bool) and math.isfinite(value)
        _require_argument(is_number and keeps_rule(value), rule, name, value)
        return kind(value)

    return check


positive_int = _number_check(int, "a positive integer", lambda v: v >= 1)
non_negative_int = _number_check(int, "an integer >= 0", lambda v: v >= 0)
_non_negative_int_or_all = _number_check(
    int, "an integer >= 0 or 'all'", lambda v: v >= 0
)
_seed = _number_check(int, "an integer in [0, 2**32)", lambda v: 0 <= v < 2**32)
_above_0 = _number_check(float, "a finite number > 0", lambda v: v > 0)
non_negative_float = _number_check(float, "a finite number >= 0", lambda v: v >= 0)
fraction = _number_check(float, "a number in [0, 1]", lambda v: 0 <= v <= 1)
positive_fraction = _number_check(float, "a number in (0, 1]", lambda v: 0 < v <= 1)
inner_fraction = _number_check(float, "a number in (0, 1)", lambda v: 0 < v < 1)


def positive_float(name: str, value: Any) -> float:
    """A number > 0, also in float32, in which most formulas compute."""
    limits = np.finfo(np.float32)
    rule = (
        f"a finite number from {limits.tiny:.2g} to {limits.max:.2g}, as float32 holds"
    )
    number = _above_0(name, value)
    _require_argument(limits.tiny <= number <= limits.max, rule, name, value)
    return number


def positive_int_or_none(name: str, value: Any) -> int | None:
    """None or an integer >= 1."""
    return None if value is None else positive_int(name, value)


def fraction_below(bound: float) -> Callable[[str, Any], float]:
    """A check for a number in [0, bound)."""
    return _number_check(float, f"a number in [0, {bound:g})", lambda v: 0 <= v < bound)


def non_negative_int_or_all(name: str, value: Any) -> Any:
    """An integer >= 0 or "all"."""
    is_all = isinstance(value, str) and value == "all"
    return value if is_all else _non_negative_int_or_all(name, value)


def seed(value: Any) -> int:
    """An integer that NumPy and TensorFlow both take."""
    return _seed("seed", value)


def imported(module: str, who_needs_it: str, extra: str) -> Any:
    """Imports a module that not every installation has."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        remedy = f"pip install -e '.[{extra}]' in a clone of the project"
        raise ImportError(f"{who_needs_it}: {remedy}. Received: {error}.") from None


def dataset_that_ends(name: str, dataset: Any) -> Any:
    """A dataset; raises for one of which a loop over all batches would not end."""
    endless = (
        getattr(dataset, "cardinality", lambda: 0)() == tf.data.INFINITE_CARDINALITY
    )
    require(not endless, f"`{name}` must end: call its `take`.", "an endless dataset")
    # A loop over a Keras `Sequence` reads it by index, and goes on past its end.
    rule = (
        f"`{name}` must be a list of its batches: `[data[i] for i in "
        "range(len(data))]`."
    )
    require(not isinstance(dataset, keras.utils.Sequence), rule, type(dataset).__name__)
    return dataset


def is_array(value: Any) -> bool:
    """Whether a value is a tensor, an array or a list; reads none of its numbers."""
    return tf.is_tensor(value) or isinstance(value, np.ndarray | list | tuple)


def positive_or_tensor(name: str, value: Any) -> Any:
    """A finite number > 0; a tensor, array or list passes unread."""
    return value if is_array(value) else positive_float(name, value)


def joined(name: str, x: Any, y: Any = None) -> Any:
    """Rows of `x`, then `y`; integers in a dtype that holds both, floats in `x`'s."""
    if y is None:
        return x
    dtype = x.dtype
    if dtype.is_integer and y.dtype.is_integer:
        dtype = tf.as_dtype(
            np.promote_types(dtype.as_numpy_dtype, y.dtype.as_numpy_dtype)
        )
        fits = dtype.is_integer
    else:
        is_number = y.dtype.is_floating or y.dtype.is_integer
        fits = dtype == y.dtype or (dtype.is_floating and is_number)
    rule = f"`{name}` must have features like the others, {x.dtype.name}."
    require(fits, rule, y.dtype.name)
    return tf.concat([tf.cast(x, dtype), tf.cast(y, dtype)], axis=0)


def changing(name: str, value: Any, check: Callable[[str, Any], float]) -> Changing:
    """A number that `check` takes, or a scalar floating variable."""
    if not isinstance(value, tf.Variable):
        return check(name, value)
    rule = f"`{name}` must be a scalar where it is a variable."
    is_right = value.shape.rank == 0 and value.dtype.is_floating
    require(is_right, rule, f"{value.dtype.name} of shape {value.shape}")
    return value


def flag(name: str, value: Any) -> bool:
    """True or False."""
    _require_argument(isinstance(value, bool | np.bool_), "True or False", name, value)
    return bool(value)


def layer_or_none(name: str, value: Any) -> Any:
    """None or a callable, such as a layer."""
    _require_argument(value is None or callable(value), "a layer or None", name, value)
    return value


def string_or_none(name: str, value: Any) -> str | None:
    """None or a string."""
    _require_argument(
        value is None or isinstance(value, str), "a string or None", name, value
    )
    return value


def mask(value: Any, scores: tf.Tensor) -> tf.Tensor | None:
    """None, or booleans of the shape of the scores, as a tensor."""
    if value is None:
        return None
    value = tf.convert_to_tensor(value)
    rule = f"`mask` must be booleans of the shape of the scores, {scores.shape}."
    is_right = value.dtype.is_bool and value.shape.is_compatible_with(scores.shape)
    require(is_right, rule, f"{value.dtype.name} {value.shape}")
    return same_sizes(
        value, scores, "`mask` must have the shape of the scores.", num_axes=2
    )


def ids(name: str, value: Any, strings: bool = True) -> Any:
    """Integers, or strings if `strings` allows them, as a tensor."""
    if not isinstance(value, tf.RaggedTensor):
        value = tf.convert_to_tensor(value)
        if value.shape.num_elements() == 0 and value.dtype != tf.string:
            return tf.cast(value, tf.int64)  # An empty list has no dtype of its own.
    value = _keras.given_labels(value)  # Keras 3 may build models with float64 ids.
    rule = f"`{name}` must hold {'integers or strings' if strings else 'integers'}."
    is_right = value.dtype.is_integer or strings and value.dtype == tf.string
    require(is_right, rule, value.dtype.name)
    return value


def rows_of_ids(name: str, value: Any, strings: bool = True) -> Any:
    """E ids per list, such as exclusions, as a tensor `[batch, E]`, dense or ragged."""
    value = ids(name, value, strings)
    rule = f"`{name}` must have the shape [batch, E]."
    require(value.shape.rank in (None, 2), rule, str(value.shape))
    return value


def one_of(name: str, value: Any, known: Collection) -> Any:
    """A value in `known`."""
    _require_argument(value in known, f"one of {known}", name, value)
    return value


def one_for_each_class(
    name: str, value: Any, is_right: Callable, rule: str
) -> list[float]:
    """A number for each class."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        array = np.empty([])
    if array.ndim != 1 or not is_right(array):
        raise ValueError(f"`{name}` must hold {rule}. Received: {value!r}.")
    return array.tolist()


# Operations that leave the values of their first input as they are: what layers at
# positions and masks add after an activation.
_KEEPING_VALUES = {
    *("Identity", "Cast", "EnsureShape", "StopGradient"),
    *("Reshape", "ExpandDims", "Squeeze", "StridedSlice", "GatherV2", "GatherNd"),
}

# Operations that choose among inputs, the first of which may be a condition. A mask
# chooses between values and a constant.
_FIRST_CHOICE = {"Pack": 0, "Select": 1, "SelectV2": 1}
_CONSTANTS = ("Const", "ZerosLike", "Fill")


def function_behind(scores: Any) -> str | None:
    """`"softmax"` or `"sigmoid"` if scores `[..., n]` come from one; else None."""
    # A graph shows the operation, at no cost when it runs. In eager mode we test for
    # rows of positive numbers that sum to 1, as of a softmax: the first row, and all
    # only if it is one.
    if tf.is_symbolic_tensor(scores):
        return _operation_behind(scores.op)
    if not tf.executing_eagerly() or isinstance(scores, tf.RaggedTensor):
        return None  # A constant of a graph.
    is_softmax = _are_probabilities(scores[:1]) and _are_probabilities(scores)
    return "softmax" if is_softmax else None


def _operation_behind(operation: tf.Operation, axis: int = -1) -> str | None:
    """The softmax or sigmoid of which an operation keeps all values; else None.

    The scores of a list are along an axis of the result, counted from the last one, -1.
    """
    inputs = [x.op for x in operation.inputs]
    if operation.type in _FIRST_CHOICE:
        choices = inputs[_FIRST_CHOICE[operation.type] :]
        choices = [x for x in choices if x.type not in _CONSTANTS]
        functions = {_operation_behind(x, axis) for x in choices}
        return functions.pop() if len(functions) == 1 else None
    if operation.type == "Transpose":
        order = tf.get_static_value(operation.inputs[1])
        if order is None:
            return None
        return _operation_behind(inputs[0], order[axis] - len(order))
    if operation.type in _KEEPING_VALUES:
        return _operation_behind(inputs[0], axis)
    is_softmax = operation.type == "Softmax" and axis == -1  # Its own axis.
    return operation.type.lower() if is_softmax or operation.type == "Sigmoid" else None


def _are_probabilities(scores: Any) -> bool:
    """Whether all rows of scores hold numbers > 0 that sum to 1."""
    rows = np.asarray(scores)
    if rows.ndim < 2 or rows.shape[-1] == 1 or not rows.size:
        return False
    # Half precision rounds each probability, also of scores that are cast later.
    tolerance = 1e-2 if rows.dtype.itemsize == 2 else 1e-3
    sums = rows.sum(axis=-1, dtype=np.float64)
    return bool((rows > 0).all() and (abs(sums - 1) < tolerance).all())


def no_probabilities(name: str, function: str | None) -> None:
    """Raises unless `function`, the result of `function_behind` for scores, is None."""
    remedy = (
        "Leave it out, or take the logarithm of a softmax: `lambda x: "
        "tf.math.log(model(x))`"
    )
    received = f"the output of a {function}. {remedy}"
    require(function is None, f"`{name}` must be scores, not probabilities.", received)
