"""What the row-wise optimizers share."""

import math
import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf import _keras
from rank4class_tf._tf import repeats
from rank4class_tf._types import TensorLike


class Rowwise:
    r"""Mixin before a Keras optimizer: its rule, on the touched rows alone, at a rate of their own.

    Keras 3's own optimizers write to the whole variable, and take a row that stands twice in a
    gradient as two steps; Keras 2 adds such rows up, but its Adam writes to the whole variable.

    A row gets a gradient from few examples of a batch whose loss is a mean, a dense weight from
    all. So SGD needs a rate for rows hundreds of times that of dense weights. What changes
    `learning_rate` in training, a schedule or a callback, changes both.

    Args:
        *args: those of the Keras optimizer.
        row_multiplier: the rate of rows over `learning_rate`, which is that of dense weights; > 0.
        **kwargs: those of the Keras optimizer.

    Raises:
        ValueError: if `row_multiplier` is not a positive number.
    """

    learning_rate: Any
    _get_variable_index: Callable
    _index_dict: dict[Any, int]
    _var_key: Callable

    def __init__(self, *args: Any, row_multiplier: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        number = isinstance(row_multiplier, numbers.Real) and not isinstance(row_multiplier, bool)
        if not (number and 0 < row_multiplier < math.inf):
            raise ValueError(
                f"`row_multiplier` must be a positive number. Received: {row_multiplier!r}."
            )
        self.row_multiplier = float(row_multiplier)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        config = super().get_config()  # type: ignore[misc]  # of the Keras optimizer
        return {**config, "row_multiplier": self.row_multiplier}

    def update_rows(
        self, ids: tf.Tensor, gradients: tf.Tensor, variable: Any, learning_rate: TensorLike
    ) -> None:
        """The rule: ids `[n]`, and the summed gradient of the row of each, `[n, ...]`.

        An id may stand twice, then with the same gradient: a rule sets rows, never adds to them.
        """
        raise NotImplementedError

    def update_step(self, gradient: Any, variable: Any, *learning_rate: TensorLike) -> None:
        """Updates a variable; Keras 3 passes the learning rate, Keras 2 has it as an attribute."""
        if not isinstance(gradient, tf.IndexedSlices):
            return super().update_step(gradient, variable, *learning_rate)  # type: ignore[misc]
        (learning_rate,) = learning_rate or (self.learning_rate,)
        learning_rate = tf.cast(learning_rate, variable.dtype) * self.row_multiplier
        values = tf.cast(gradient.values, variable.dtype)
        return self.update_slices(gradient.indices, values, variable, learning_rate)

    def update_slices(
        self, ids: tf.Tensor, gradients: tf.Tensor, variable: Any, learning_rate: TensorLike
    ) -> None:
        """The rule for gradients of which several may be of one row."""
        # The distinct rows alone would have a shape that is known only when it runs, which XLA gets
        # wrong and a TPU does not take.
        position = repeats.kinds(ids[tf.newaxis])[0]
        sums = tf.math.unsorted_segment_sum(gradients, position, tf.size(ids))
        return self.update_rows(ids, tf.gather(sums, position), variable, learning_rate)

    def _deduplicate_sparse_grad(self, grads):
        # Keras 2 would look for the distinct rows itself, which have no static shape.
        return grads

    def slot(self, slots: Any, variable: Any) -> tf.Variable:
        """The one of `slots` that belongs to `variable`, as a `tf.Variable`."""
        if _keras.KERAS_3:
            return slots[self._get_variable_index(variable)].value
        return slots[self._index_dict[self._var_key(variable)]]


def set_rows(variable: Any, ids: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Sets the rows of a variable and returns them."""
    variable.scatter_update(tf.IndexedSlices(rows, ids))
    return rows
