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

    and all else as `keras.optimizers.SGD`. The momentum of a row decays only when the row is
    touched, so that a rare row repeats a step of long ago. `row_momentum=False` gives rows no
    momentum; "Stochastic Negative Mining", section 5, trains its embeddings like that, with a large
    rate for rows.

    Args:
        *args: as in `keras.optimizers.SGD`.
        row_momentum: whether rows have momentum too, or only dense weights.
        row_multiplier: $\eta$ of rows over `learning_rate`, which is that of dense weights; > 0.
        **kwargs: as in `keras.optimizers.SGD`: `learning_rate`, `momentum`, `nesterov`, ...
            With momentum 0, the default, the optimizer keeps no state.

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

    def __init__(self, *args: Any, row_momentum: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row_momentum = _checks.flag("row_momentum", row_momentum)

    def add_variable_from_reference(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a slot, but no velocities without momentum, which Keras 2 would keep as well."""
        if kwargs.get("variable_name") == "m" and not self.momentum:
            return None
        return super().add_variable_from_reference(*args, **kwargs)

    def update_slices(
        self, ids: tf.Tensor, gradients: tf.Tensor, variable: Any, learning_rate: TensorLike
    ) -> None:
        """The rule for gradients among which a row may have several."""
        if self.momentum and self.row_momentum:
            super().update_slices(ids, gradients, variable, learning_rate)
        else:
            self.update_rows(ids, gradients, variable, learning_rate)

    def update_rows(
        self, ids: tf.Tensor, gradients: tf.Tensor, variable: Any, learning_rate: TensorLike
    ) -> None:
        """The rule of the touched rows."""
        if not (self.momentum and self.row_momentum):
            # The steps of a row with several gradients add up.
            variable.scatter_sub(tf.IndexedSlices(learning_rate * gradients, ids))
            return
        step = -learning_rate * gradients
        velocities = self.slot(self.momentums, variable)
        velocity = self.momentum * tf.gather(velocities, ids) + step
        _rows.set_rows(velocities, ids, velocity)
        step = self.momentum * velocity + step if self.nesterov else velocity
        _rows.set_rows(variable, ids, tf.gather(variable, ids) + step)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), "row_momentum": self.row_momentum}
