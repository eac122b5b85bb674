"""RowwiseAdagrad."""

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf.optimizers import _rows


@_keras.register
class RowwiseAdagrad(_rows.Rowwise, keras.optimizers.Adagrad):
    r"""Adagrad that touches only the rows with a gradient.

    For each row r of a table that the batch looks up, with the sum g of its gradients,

    $$a_r \leftarrow a_r + g^2, \qquad w_r \leftarrow w_r - \eta\, g / \sqrt{a_r + \epsilon}$$

    which is Adagrad itself, since a row without a gradient stays as it is.

    Source: Duchi, Hazan & Singer 2011.

    Args:
        *args: as in `keras.optimizers.Adagrad`.
        row_multiplier: $\eta$ of rows over `learning_rate`, which is that of dense weights; > 0.
        **kwargs: as in `keras.optimizers.Adagrad`: `learning_rate`, ...

    Raises:
        ValueError: if `row_multiplier` is not a positive number.

    Example:
        >>> float(RowwiseAdagrad(learning_rate=0.5).learning_rate)
        0.5
    """

    def update_rows(self, ids, gradients, variable, learning_rate):
        """The rule of the touched rows."""
        accumulators = self.slot(self._accumulators, variable)
        sums = tf.gather(accumulators, ids) + tf.square(gradients)
        _rows.set_rows(accumulators, ids, sums)
        step = learning_rate * gradients * tf.math.rsqrt(sums + self.epsilon)
        _rows.set_rows(variable, ids, tf.gather(variable, ids) - step)
