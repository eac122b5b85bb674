"""Types of arguments and results."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

# A tensor, or what TensorFlow makes one from.
Array: TypeAlias = tf.Tensor | np.ndarray | Sequence | float
Tensor: TypeAlias = tf.Tensor
Tensors: TypeAlias = Sequence[tf.Tensor]
TensorPair: TypeAlias = tuple[tf.Tensor, tf.Tensor]
Function: TypeAlias = Callable[..., tf.Tensor]
# What `tf.custom_gradient` reads: a value, and a function from its gradient to those of the inputs.
WithGradient: TypeAlias = tuple[Any, Callable[..., Any]]
# Cutoffs of a metric.
Cutoffs: TypeAlias = int | Sequence[int] | None
PathLike: TypeAlias = str | os.PathLike[str]
# A number, or a scalar `tf.Variable` that training changes, such as by a callback.
Changing: TypeAlias = float | tf.Variable
# A function, or the name of one.
Choice: TypeAlias = str | Callable
# Values, and their weights if any.
Weighted: TypeAlias = tuple[tf.Tensor, tf.Tensor | None]
