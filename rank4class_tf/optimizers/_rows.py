"""What the row-wise optimizers share."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _keras
from rank4class_tf._tf import repeats
from rank4class_tf._types import TensorLike

# So many rows of a table are updated at once where all are.
_ROWS = 16_384


class Rowwise:
    r"""Mixin before a Keras optimizer: applies its rule only to touched rows, at their own rate.

    Keras 3's own optimizers write to the whole variable, and a row that occurs twice in a gradient
    takes two steps. Keras 2 adds up such rows, but its Adam writes to the whole variable.

    The loss of a batch is a mean over its examples. A row gets gradients from few of them, a dense
    weight from all. So SGD needs a rate for rows that is hundreds of times that of dense weights. A
    schedule or a callback that changes `learning_rate` in training changes both.

    Clipping sees the sum of a row's gradients. `weight_decay` also changes untouched rows. A loss
    over all classes, or a regularizer of a table, gives every row of the table a gradient; all of
    them are updated then, at the rate of rows.

    Args:
        *args: those of the Keras optimizer.
        row_multiplier: the rate of rows over `learning_rate`, which is that of dense weights; > 0.
        **kwargs: those of the Keras optimizer.

    Raises:
        ValueError: if `row_multiplier` is not a positive number, or with
            `gradient_accumulation_steps` or `loss_scale_factor`, which in Keras work only with
            dense gradients. To scale losses, put a `LossScaleOptimizer` around the optimizer.
    """

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    learning_rate: Any
    _get_variable_index: Callable
    _index_dict: dict[Any, int]
    _var_key: Callable

    def __init__(self, *args: Any, row_multiplier: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row_multiplier = _checks.positive_float("row_multiplier", row_multiplier)
        for name in ("gradient_accumulation_steps", "loss_scale_factor"):
            value = getattr(self, name, None)  # Keras 2 has neither.
            if value is not None:
                raise ValueError(
                    f"`{name}` must be None: in Keras it works only with dense gradients. "
                    f"Received: {name}={value!r}."
                )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        config = super().get_config()  # type: ignore[misc]  # of the Keras optimizer
        return {**config, "row_multiplier": self.row_multiplier}

    def update_rows(
        self, ids: tf.Tensor, gradients: tf.Tensor, variable: Any, learning_rate: TensorLike
    ) -> None:
        """The rule: ids `[n]`, and the summed gradient of the row of each, `[n, ...]`.

        An id that occurs twice has the same gradient both times, so a rule must set rows, never add
        to them.
        """
        raise NotImplementedError

    def update_step(self, gradient: Any, variable: Any, *learning_rate: TensorLike) -> None:
        """Updates a variable; Keras 3 passes the learning rate, Keras 2 has it as an attribute."""
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        if not is_sparse and not _keras.is_table(variable):
            return super().update_step(gradient, variable, *learning_rate)  # type: ignore[misc]
        (learning_rate,) = learning_rate or (self.learning_rate,)
        learning_rate = tf.cast(learning_rate, variable.dtype) * self.row_multiplier
        if not is_sparse:
            return self._update_all_rows(gradient, variable, learning_rate)
        values = tf.cast(gradient.values, variable.dtype)
        ids = tf.convert_to_tensor(gradient.indices)
        if ids.shape[0] is not None:
            return self.update_slices(ids, values, variable, learning_rate)
        # Only running tells how many rows a loss over all classes has a gradient for. Where it is
        # all of them, there are none to add up.
        ids = tf.cast(ids, tf.int32)
        is_all = tf.equal(tf.size(ids), variable.shape[0])
        is_all &= tf.reduce_all(ids == tf.range(tf.size(ids)))
        return tf.cond(
            is_all,
            lambda: self._update_all_rows(values, variable, learning_rate),
            lambda: self.update_slices(ids, values, variable, learning_rate),
        )

    def _update_all_rows(self, gradient, variable, learning_rate):
        """Updates all rows of a table, some at a time: memory does not grow with the table."""
        gradient, number = tf.cast(gradient, variable.dtype), variable.shape[0]
        size = min(_ROWS, number)  # XLA needs static shapes.

        def update(ids):
            self.update_rows(ids, tf.gather(gradient, ids), variable, learning_rate)

        def step(block):
            update(block * size + tf.range(size))
            return [block + 1]

        tf.while_loop(lambda block: block < number // size, step, [tf.constant(0)])
        if number % size:
            update(tf.range(number - number % size, number))

    def update_slices(
        self, ids: tf.Tensor, gradients: tf.Tensor, variable: Any, learning_rate: TensorLike
    ) -> None:
        """The rule for gradients among which a row may have several."""
        return self.update_rows(ids, _sums(ids, gradients), variable, learning_rate)

    def _clip_gradients(self, grads):
        if not any((self.clipnorm, self.global_clipnorm, self.clipvalue)):
            return grads
        # Only the values are clipped: Keras 3 makes slices dense where it clips by the norm of all.
        values = [_summed(x) if isinstance(x, tf.IndexedSlices) else x for x in grads]
        clipped = super()._clip_gradients(values)  # type: ignore[misc]
        return [
            tf.IndexedSlices(y, x.indices, x.dense_shape) if isinstance(x, tf.IndexedSlices) else y
            for x, y in zip(grads, clipped, strict=True)
        ]

    def _deduplicate_sparse_grad(self, grads):
        # Keras 2 would look for the distinct rows itself, whose number is not static.
        return grads

    def slot(self, slots: Any, variable: Any) -> tf.Variable:
        """The one of `slots` that belongs to `variable`, as a `tf.Variable`."""
        if _keras.KERAS_3:
            return slots[self._get_variable_index(variable)].value
        return slots[self._index_dict[self._var_key(variable)]]


def _sums(ids, gradients):
    """For each gradient the sum of all gradients of its row."""
    # The number of distinct rows is known only when the graph runs. XLA gets such shapes wrong and
    # TPUs do not take them.
    position = repeats.kinds(ids[tf.newaxis])[0]
    return tf.gather(tf.math.unsorted_segment_sum(gradients, position, tf.size(ids)), position)


def _summed(gradient):
    """The values of a gradient: the sum of a row where it occurs first, 0 where it repeats."""
    ids = tf.convert_to_tensor(gradient.indices)
    values = _sums(ids, tf.convert_to_tensor(gradient.values))
    shape = tf.concat([tf.shape(ids), tf.ones([tf.rank(values) - 1], tf.int32)], axis=0)
    first = tf.reshape(repeats.firsts(ids[tf.newaxis])[0], shape)
    return tf.where(first, values, tf.zeros_like(values))


def set_rows(variable: Any, ids: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Sets the rows of a variable and returns them."""
    variable.scatter_update(tf.IndexedSlices(rows, ids))
    return rows
