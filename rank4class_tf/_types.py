"""Types of arguments and results."""

from typing import Any, TypeAlias

# A tensor, or what TensorFlow makes one from: arrays, nested lists, numbers.
TensorLike: TypeAlias = Any
