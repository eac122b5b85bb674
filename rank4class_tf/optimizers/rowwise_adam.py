"""RowwiseAdam."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf._types import TensorLike
from rank4class_tf.optimizers import _rows


@_keras.register
class RowwiseAdam(_rows.Rowwise, keras.optimizers.Adam):
    r"""Adam that touches only the rows with a gradient, also known as lazy Adam.

    For each row r of a table that the batch of step t looks up, with the sum g of its gradients,

    $$m_r \leftarrow \beta_1 m_r + (1 - \beta_1) g, \qquad
    v_r \leftarrow \beta_2 v_r + (1 - \beta_2) g^2, \qquad
    w_r \leftarrow w_r - \eta \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t}
    \frac{m_r}{\sqrt{v_r} + \epsilon}$$

    and all else as `keras.optimizers.Adam`. The moments of a row decay when the row is touched.

    Source: Kingma & Ba 2015.

    Args:
        *args: as in `keras.optimizers.Adam`.
        row_multiplier: $\eta$ of rows over `learning_rate`, which is that of dense weights; > 0.
        **kwargs: as in `keras.optimizers.Adam`: `learning_rate`, `beta_1`, `beta_2`, ...

    Raises:
        ValueError: with `amsgrad=True`, which it does not have, or if `row_multiplier` is not a
            positive number.

    Example:
        >>> float(RowwiseAdam(learning_rate=0.5).learning_rate)
        0.5
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.amsgrad:
            raise ValueError("`amsgrad` must be False. Received: amsgrad=True.")

    def update_rows(
        self, ids: tf.Tensor, gradients: tf.Tensor, variable: Any, learning_rate: TensorLike
    ) -> None:
        """The rule of the touched rows."""
        step = tf.cast(self.iterations + 1, variable.dtype)
        correction = tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)

        def moment(slots, decay, value):
            slot = self.slot(slots, variable)
            return _rows.set_rows(slot, ids, decay * tf.gather(slot, ids) + (1 - decay) * value)

        mean = moment(self._momentums, self.beta_1, gradients)
        square = moment(self._velocities, self.beta_2, tf.square(gradients))
        change = learning_rate * correction * mean / (tf.sqrt(square) + self.epsilon)
        _rows.set_rows(variable, ids, tf.gather(variable, ids) - change)
