"""RowwiseSGD."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._types import TensorLike
from rank4class_tf.optimizers import _rows


@_keras.register
class RowwiseSGD(_rows.Rowwise, keras.optimizers.SGD):
    r"""Stochastic gradient descent that touches only the rows with a gradient.

    For each row r of a table that the batch looks up, with the sum g of its gradients,

    $$v_r \leftarrow \mu v_r - \eta g, \qquad w_r \leftarrow w_r + v_r$$

    and all else as `keras.optimizers.SGD`. The momentum of a row decays when the row is touched: a
    rare row takes up a step of long ago. `momentum_of_rows=False` leaves rows without momentum, as
    "Stochastic Negative Mining" trains its embeddings, section 5, with a large rate for rows.

    Args:
        *args: as in `keras.optimizers.SGD`.
        momentum_of_rows: whether rows have momentum too, or only what is updated as a whole.
        row_multiplier: $\eta$ of rows over `learning_rate`, which is that of dense weights; > 0.
        **kwargs: as in `keras.optimizers.SGD`: `learning_rate`, `momentum`, `nesterov`, ...
            With momentum 0, the default, nothing but the weights is kept.

    Raises:
        ValueError: if `row_multiplier` is not a positive number.

    Example:
        >>> table, weights = tf.Variable(tf.zeros([3, 1])), tf.Variable([0.0])
        >>> optimizer = RowwiseSGD(learning_rate=0.5, row_multiplier=10.0)
        >>> of_row = tf.IndexedSlices([[1.0]], [2], [3, 1])
        >>> _ = optimizer.apply_gradients([(of_row, table), (tf.constant([1.0]), weights)])
        >>> table[2].numpy(), weights.numpy()
        (array([-5.], dtype=float32), array([-0.5], dtype=float32))
    """

    def __init__(self, *args: Any, momentum_of_rows: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.momentum_of_rows = _checks.flag("momentum_of_rows", momentum_of_rows)

    def add_variable_from_reference(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a slot; Keras 2 asks for velocities as large as the weights without momentum too."""
        if kwargs.get("variable_name") == "m" and not self.momentum:
            return None
        return super().add_variable_from_reference(*args, **kwargs)

    def update_slices(
        self, ids: tf.Tensor, gradients: tf.Tensor, variable: Any, learning_rate: TensorLike
    ) -> None:
        """The rule for gradients of which several may be of one row."""
        if self.momentum and self.momentum_of_rows:
            super().update_slices(ids, gradients, variable, learning_rate)
        else:  # Their steps add up by themselves.
            variable.scatter_add(tf.IndexedSlices(-learning_rate * gradients, ids))

    def update_rows(
        self, ids: tf.Tensor, gradients: tf.Tensor, variable: Any, learning_rate: TensorLike
    ) -> None:
        """The rule of the touched rows."""
        step = -learning_rate * gradients
        velocities = self.slot(self.momentums, variable)
        velocity = self.momentum * tf.gather(velocities, ids) + step
        _rows.set_rows(velocities, ids, velocity)
        step = self.momentum * velocity + step if self.nesterov else velocity
        _rows.set_rows(variable, ids, tf.gather(variable, ids) + step)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), "momentum_of_rows": self.momentum_of_rows}
