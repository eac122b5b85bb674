"""Types of arguments and results."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

# Anything that converts to a tensor.
Array: TypeAlias = tf.Tensor | np.ndarray | Sequence | float
Tensor: TypeAlias = tf.Tensor
# Known before the graph runs, or not.
Size: TypeAlias = int | tf.Tensor
# What an encoder takes: an array, or arrays in a dict, tuple or list.
Features: TypeAlias = Array | dict
Tensors: TypeAlias = Sequence[tf.Tensor]
TensorPair: TypeAlias = tuple[tf.Tensor, tf.Tensor]
Function: TypeAlias = Callable[..., tf.Tensor]
# What `tf.custom_gradient` reads: a value, and a function from its gradient to those of
# the inputs.
WithGradient: TypeAlias = tuple[Any, Callable[..., Any]]
Shape: TypeAlias = tuple[int | None, ...]  # None where it is not known.
Cutoffs: TypeAlias = int | Sequence[int] | None  # Of a metric.
PathLike: TypeAlias = str | os.PathLike[str]
# A callback may change a scalar variable in training.
Changing: TypeAlias = float | tf.Variable
Choice: TypeAlias = str | Callable  # A function, or the name of one.
# Values, and their weights if any.
Weighted: TypeAlias = tuple[tf.Tensor, tf.Tensor | None]
