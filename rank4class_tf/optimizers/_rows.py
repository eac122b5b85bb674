"""What the row-wise optimizers share."""

import tensorflow as tf

from rank4class_tf import _keras


class Rowwise:
    """Mixin before a Keras optimizer: its rule, on the touched rows alone.

    Keras 3's own optimizers write to the whole variable, and take a row that stands twice in a
    gradient as two steps; Keras 2 adds such rows up, but its Adam writes to the whole variable.
    """

    def update_rows(self, ids, gradients, variable, learning_rate):
        """The rule: ids `[n]`, and the summed gradient of the row of each, `[n, ...]`.

        An id may stand twice, then with the same gradient: a rule sets rows, never adds to them.
        """
        raise NotImplementedError

    def update_step(self, gradient, variable, *learning_rate):
        """Updates a variable; Keras 3 passes the learning rate, Keras 2 has it as an attribute."""
        if not isinstance(gradient, tf.IndexedSlices):
            return super().update_step(gradient, variable, *learning_rate)
        (learning_rate,) = learning_rate or (self.learning_rate,)
        learning_rate = tf.cast(learning_rate, variable.dtype)
        values = tf.cast(gradient.values, variable.dtype)
        return self.update_slices(gradient.indices, values, variable, learning_rate)

    def update_slices(self, ids, gradients, variable, learning_rate):
        """The rule for gradients of which several may be of one row."""
        # The distinct rows alone would have a shape that is known only when it runs, which XLA gets
        # wrong.
        _, position = tf.unique(ids)
        sums = tf.math.unsorted_segment_sum(gradients, position, tf.size(ids))
        return self.update_rows(ids, tf.gather(sums, position), variable, learning_rate)

    def slot(self, slots, variable):
        """The one of `slots` that belongs to `variable`, as a `tf.Variable`."""
        if _keras.KERAS_3:
            return slots[self._get_variable_index(variable)].value
        return slots[self._index_dict[self._var_key(variable)]]


def set_rows(variable, ids, rows):
    """Sets the rows of a variable and returns them."""
    variable.scatter_update(tf.IndexedSlices(rows, ids))
    return rows
