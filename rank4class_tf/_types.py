"""Types of arguments and results."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

Array: TypeAlias = (
    tf.Tensor | np.ndarray | Sequence | float
)  # Anything that converts to a tensor.
Tensor: TypeAlias = tf.Tensor
Tensors: TypeAlias = Sequence[tf.Tensor]
TensorPair: TypeAlias = tuple[tf.Tensor, tf.Tensor]
Function: TypeAlias = Callable[..., tf.Tensor]
# What `tf.custom_gradient` reads: a value, and a function from its gradient to those of
# the inputs.
WithGradient: TypeAlias = tuple[Any, Callable[..., Any]]
Cutoffs: TypeAlias = int | Sequence[int] | None  # Of a metric.
PathLike: TypeAlias = str | os.PathLike[str]
Changing: TypeAlias = (
    float | tf.Variable
)  # A callback may change a scalar variable in training.
Choice: TypeAlias = str | Callable  # A function, or the name of one.
Weighted: TypeAlias = tuple[
    tf.Tensor, tf.Tensor | None
]  # Values, and their weights if any.
