"""Initial rows of large tables."""

import math
from typing import Any

import tensorflow as tf

from rank4class_tf import _keras
from rank4class_tf._keras import keras


# In a graph the steps reuse memory; eagerly, each would take that of a whole table.
@tf.function(
    input_signature=[
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([2], tf.int32),
        tf.TensorSpec([], tf.float32),
    ]
)
def _uniform(shape, seed, limit):
    return tf.random.stateless_uniform(shape, seed, -limit, limit)


@_keras.register
class AboutUnitRows(keras.initializers.Initializer):
    """Rows of length 1 or a little less: uniform numbers with a variance of 1 / width."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, shape: Any, dtype: Any = None, **kwargs: Any) -> tf.Tensor:
        """Returns the rows."""
        del kwargs  # Keras 2 has more to say.
        values = _uniform(list(shape), [self.seed, 1], math.sqrt(3 / shape[-1]))
        return tf.ensure_shape(tf.cast(values, dtype or tf.float32), shape)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {"seed": self.seed}
