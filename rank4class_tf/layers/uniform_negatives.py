"""UniformNegatives."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _random, ops


@_keras.register
class UniformNegatives(keras.layers.Layer):
    """Draws negatives from all candidates, uniformly without replacement.

    In-batch negatives are mostly frequent candidates; with only these, most others would never be
    negatives. Each call in training draws other candidates, the same on all devices of a strategy.

    Source: Yang et al. 2020, "Mixed Negative Sampling for Learning Two-tower Neural Networks in
    Recommendations".

    Args:
        num_sampled: how many, >= 1; all candidates, if these are fewer.
        seed: an int; None draws one from NumPy's global generator.
        **kwargs: arguments of Keras, such as `name`.

    Input: a tensor with a row for each candidate; only its static number of rows is read.
    Output: row numbers, int32.

    Raises:
        ValueError: if `num_sampled` is not a positive integer.

    Example:
        >>> rows = UniformNegatives(3, seed=1)(tf.zeros([100]))
        >>> rows.shape, bool(tf.reduce_all(rows < 100))
        (TensorShape([3]), True)
    """

    def __init__(self, num_sampled: int, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_sampled = _checks.positive_int("num_sampled", num_sampled)
        self.seed = _random.start_seed(seed)

    def build(self, input_shape: Any) -> None:
        """Creates the random state."""
        self.random_state = _random.add_state(self, self.seed)
        self.built = True

    def call(self, inputs: Any, training: Any = None) -> tf.Tensor:
        """Returns the rows that were drawn."""
        num_candidates = inputs.shape[0]
        size = min(self.num_sampled, num_candidates)
        seed = _random.step_seed(self.random_state, training)
        return ops.sample_distinct(num_candidates, size, seed)[0]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), "num_sampled": self.num_sampled, "seed": self.seed}
