"""Types of arguments and results."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

# A tensor, or what TensorFlow makes one from: arrays, nested lists, numbers.
TensorLike: TypeAlias = Any
Tensor: TypeAlias = tf.Tensor
Tensors: TypeAlias = Sequence[tf.Tensor]
TensorPair: TypeAlias = tuple[tf.Tensor, tf.Tensor]
Function: TypeAlias = Callable[..., tf.Tensor]
# What `tf.custom_gradient` reads: a value, and a function from its gradient to those of the inputs.
WithGradient: TypeAlias = tuple[Any, Callable[..., Any]]
