"""RowwiseAdagrad."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._types import TensorLike
from rank4class_tf.optimizers import _rows


@_keras.register
class RowwiseAdagrad(_rows.Rowwise, keras.optimizers.Adagrad):
    r"""Adagrad that touches only the rows with a gradient.

    For each row r of a table that the batch looks up, with the sum g of its gradients,

    $$a_r \leftarrow a_r + g^2, \qquad w_r \leftarrow w_r - \eta\, g / \sqrt{a_r + \epsilon}$$

    This is Adagrad itself, since in Adagrad a row without a gradient stays as it is. Only the start
    of $a_r$ differs. Keras starts at 0.1, far above the squares of a row's gradients where the loss
    is a mean over a batch: these are about 1e-7 for class embeddings of length 1. Such rows hardly
    move at the usual rates. With a start of 1e-8 they move, at first by $\eta$ in each number: for
    rows of length 1 take a rate of about 0.03.

    Source: Duchi, Hazan & Singer 2011.

    Args:
        learning_rate: $\eta$ of dense weights, a number or a schedule.
        initial_accumulator_value: $a_r$ at the start, >= 0.
        row_multiplier: $\eta$ of rows over `learning_rate`; > 0.
        **kwargs: as in `keras.optimizers.Adagrad`: `epsilon`, ...

    Raises:
        ValueError: if `row_multiplier` is not > 0 or `initial_accumulator_value` not >= 0.

    Example:
        >>> float(RowwiseAdagrad(learning_rate=0.5).learning_rate)
        0.5
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        initial_accumulator_value: float = 1e-8,
        **kwargs: Any,
    ) -> None:
        _checks.non_negative_float("initial_accumulator_value", initial_accumulator_value)
        super().__init__(
            learning_rate, initial_accumulator_value=initial_accumulator_value, **kwargs
        )

    def update_rows(
        self, ids: tf.Tensor, gradients: tf.Tensor, variable: Any, learning_rate: TensorLike
    ) -> None:
        """The rule of the touched rows."""
        accumulators = self.slot(self._accumulators, variable)
        sums = tf.gather(accumulators, ids) + tf.square(gradients)
        _rows.set_rows(accumulators, ids, sums)
        step = learning_rate * gradients * tf.math.rsqrt(sums + self.epsilon)
        _rows.set_rows(variable, ids, tf.gather(variable, ids) - step)
