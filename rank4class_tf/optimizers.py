"""Optimizers for single rows of large tables; Keras's rules update dense weights."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._tf import gather
from rank4class_tf._tf.loops import fold_blocks
from rank4class_tf._tf.private import private
from rank4class_tf._types import Tensor

__all__ = ["RowwiseAdagrad", "RowwiseAdam", "RowwiseSGD", "Rowwise"]

# How many rows of a table are updated at once where all of them are.
_ROWS_PER_BLOCK = 16_384


class Rowwise:
    """Mixin before a Keras optimizer: updates only touched rows, at their own rate.

    Keras's own Adam, and all optimizers of Keras 3, write to the whole variable. In
    Keras 3, a row that occurs twice in a gradient takes two steps.

    The loss of a batch is a mean over its examples. A row gets gradients from few of
    them, a dense weight from all, so SGD needs a rate for rows that is thousands of
    times that of dense weights.

    Clipping sees the sum of a row's gradients. `weight_decay` also changes untouched
    rows. To scale losses, put a `LossScaleOptimizer` around the optimizer:
    `loss_scale_factor` and `gradient_accumulation_steps` work in Keras only with dense
    gradients, and raise here.

    Args:
        *args: those of the Keras optimizer.
        row_multiplier: the rate of rows divided by `learning_rate`, that of dense
            weights; > 0. A change of `learning_rate` changes both.
        **kwargs: those of the Keras optimizer.
    """

    def __init__(self, *args: Any, row_multiplier: float = 1.0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.row_multiplier = _checks.positive_float("row_multiplier", row_multiplier)
        for name in ("gradient_accumulation_steps", "loss_scale_factor"):
            value = getattr(self, name, None)  # Keras 2 has neither.
            rule = (
                f"`{name}` must be None: in Keras it works only with dense gradients."
            )
            _checks.require(value is None, rule, f"{name}={value!r}")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), "row_multiplier": self.row_multiplier}  # type: ignore[misc]

    def update_rows(
        self,
        ids: Tensor,
        gradients: Tensor,
        variable: tf.Variable,
        learning_rate: Tensor,
    ) -> None:
        """The rule, for ids `[n]` and the summed gradient of each id's row, `[n, ...]`.

        An id that occurs twice has the same sum both times, so a rule must set rows,
        not add to them. Only one whose `update_slices` passes gradients that are not
        summed adds, as that of `RowwiseSGD` does without momentum.
        """
        raise NotImplementedError

    def update_step(
        self: Any,
        gradient: Tensor | tf.IndexedSlices,
        variable: tf.Variable,
        *learning_rate: Tensor,
    ) -> None:
        """Updates a variable; Keras 3 passes the learning rate, Keras 2 stores it."""
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        if not is_sparse and not _keras.is_table(variable):
            return super().update_step(gradient, variable, *learning_rate)  # type: ignore[misc]
        (learning_rate,) = learning_rate or (self.learning_rate,)
        dtype = _compute_dtype(variable.dtype)
        learning_rate = tf.cast(learning_rate, dtype) * self.row_multiplier
        if not is_sparse:
            gradient = tf.cast(gradient, dtype)
            return self._update_all_rows(gradient, variable, learning_rate)
        values = tf.cast(gradient.values, dtype)
        ids = tf.convert_to_tensor(gradient.indices)
        if ids.shape[0] is not None:
            return self.update_slices(ids, values, variable, learning_rate)
        # For a loss over all classes, the number of gradients is known only at run
        # time. Where each row has one, in order, there are none to add up.
        ids = tf.cast(ids, tf.int32)
        is_all = tf.equal(tf.size(ids), variable.shape[0])
        is_all &= tf.reduce_all(ids == tf.range(tf.size(ids)))
        return tf.cond(
            is_all,
            lambda: self._update_all_rows(values, variable, learning_rate),
            lambda: self.update_slices(ids, values, variable, learning_rate),
        )

    def _update_all_rows(
        self, gradient: Tensor, variable: tf.Variable, learning_rate: Tensor
    ) -> None:
        """Updates all rows of a table, some at a time: memory does not grow with it."""

        def update(ids: Tensor) -> list:
            self.update_rows(ids, tf.gather(gradient, ids), variable, learning_rate)
            return []

        fold_blocks(update, variable.shape[0], _ROWS_PER_BLOCK)

    def update_slices(
        self,
        ids: Tensor,
        gradients: Tensor,
        variable: tf.Variable,
        learning_rate: Tensor,
    ) -> None:
        """The rule for gradients of which a row may have several."""
        return self.update_rows(ids, _row_sums(ids, gradients), variable, learning_rate)

    def _clip_gradients(self: Any, grads: Sequence) -> Sequence:
        if not any((self.clipnorm, self.global_clipnorm, self.clipvalue)):
            return grads
        # Only the values are clipped: Keras 3 makes slices dense where it clips by the
        # norm of all.
        values = []
        for gradient in grads:
            if isinstance(gradient, tf.IndexedSlices):
                ids = tf.convert_to_tensor(gradient.indices)
                gradient = gather.sums_once(ids, tf.convert_to_tensor(gradient.values))
            values.append(gradient)
        clipped = [*super()._clip_gradients(values)]  # type: ignore[misc]
        for i, gradient in enumerate(grads):
            if isinstance(gradient, tf.IndexedSlices):
                indices, shape = gradient.indices, gradient.dense_shape
                clipped[i] = tf.IndexedSlices(clipped[i], indices, shape)
        return clipped

    def _deduplicate_sparse_grad(self, grads: Sequence) -> Sequence:
        # Keras 2 would look for the distinct rows itself, whose number is not static.
        return grads

    def add_variable(self, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        """Adds a variable of Keras 3, a float32 one for a weight of half precision."""
        # Keras would keep moments in the dtype of their weight, and .999 is 1 in
        # bfloat16.
        dtype = _compute_dtype(tf.as_dtype(dtype)).name if dtype else None
        return super().add_variable(*args, dtype=dtype, **kwargs)  # type: ignore[misc]

    def add_variable_from_reference(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Adds a variable for a weight, a float32 one for a table of half precision."""
        # Of Keras 2, which has no `add_variable`.
        weight = kwargs.get("model_variable")
        if weight is None or not _keras.is_table(weight) or weight.dtype.size >= 4:
            return super().add_variable_from_reference(*args, **kwargs)  # type: ignore[misc]
        start = kwargs.get("initial_value")
        start = tf.zeros(weight.shape) if start is None else tf.cast(start, tf.float32)
        with tf.distribute.get_strategy().extended.colocate_vars_with(weight):
            moments = tf.Variable(start, trainable=False, name=kwargs["variable_name"])
        private(self, "_variables").append(moments)
        return moments

    def _update_model_variables_moving_average(self, weights: Sequence) -> None:
        if _keras.KERAS_3:  # Its averages are float32 too; see `add_variable`.
            weights = [
                tf.cast(x, _compute_dtype(tf.as_dtype(x.dtype))) for x in weights
            ]
        super()._update_model_variables_moving_average(weights)  # type: ignore[misc]

    def _overwrite_model_variables_with_average_value(
        self: Any, weights: Sequence
    ) -> None:
        if not _keras.KERAS_3:
            return super()._overwrite_model_variables_with_average_value(weights)  # type: ignore[misc]
        averages = private(self, "_model_variables_moving_average")
        for weight, average in zip(weights, averages, strict=True):
            self.assign(weight, average)  # It casts.

    def slot(self: Any, name: str, variable: tf.Variable) -> tf.Variable:
        """What a list of the optimizer, such as "momentums", has for `variable`."""
        slots = private(self, name)
        if _keras.KERAS_3:
            return slots[private(self, "_get_variable_index")(variable)].value
        return slots[self._index_dict[self._var_key(variable)]]


def _row_sums(ids: Tensor, gradients: Tensor) -> Tensor:
    """For each gradient the sum of all gradients of its row."""
    # Not one sum for each distinct row: XLA and TPUs need a size that is known before
    # running.
    group = gather.group_numbers(ids[tf.newaxis])[0]
    sums = tf.math.unsorted_segment_sum(gradients, group, tf.size(ids))
    return tf.gather(sums, group)


def _compute_dtype(dtype: tf.DType) -> tf.DType:
    """The dtype for updating rows of a dtype: half precision loses small changes."""
    return dtype if dtype.size >= 4 else tf.float32


def _rows(variable: tf.Variable, ids: Tensor) -> Tensor:
    """Rows of a variable, in the dtype of the rules."""
    return tf.cast(tf.gather(variable, ids), _compute_dtype(variable.dtype))


def _set_rows(variable: tf.Variable, ids: Tensor, rows: Tensor) -> Tensor:
    """Sets the rows of a variable and returns them."""
    variable.scatter_update(tf.IndexedSlices(tf.cast(rows, variable.dtype), ids))
    return rows


@_keras.register
class RowwiseAdagrad(Rowwise, keras.optimizers.Adagrad):
    r"""Adagrad that touches only the rows with a gradient.

    For each row r of a table that the batch looks up, with the sum g of its gradients,

    $$a_r \leftarrow a_r + g^2, \qquad
    w_r \leftarrow w_r - \eta\, g / \sqrt{a_r + \epsilon}$$

    This is Adagrad but for the start of $a_r$. Keras starts at 0.1, far above the
    squares of a row's gradients in a mean over a batch (about 1e-7 for class embeddings
    of length 1), so that rows hardly move. From 1e-8 they first move by $\eta$ in each
    component: for rows of length 1 take a rate of about 0.03.

    Source: Duchi, Hazan & Singer 2011.

    Args:
        learning_rate: $\eta$ of dense weights, a number or a schedule.
        initial_accumulator_value: $a_r$ at the start, >= 0.
        row_multiplier: $\eta$ of rows divided by `learning_rate`; > 0.
        **kwargs: as in `keras.optimizers.Adagrad`: `epsilon`, ...
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        initial_accumulator_value: float = 1e-8,
        **kwargs: Any,
    ):
        start = _checks.non_negative_float(
            "initial_accumulator_value", initial_accumulator_value
        )
        super().__init__(learning_rate, initial_accumulator_value=start, **kwargs)

    def update_rows(
        self,
        ids: Tensor,
        gradients: Tensor,
        variable: tf.Variable,
        learning_rate: Tensor,
    ) -> None:
        accumulators = self.slot("_accumulators", variable)
        sums = _rows(accumulators, ids) + tf.square(gradients)
        _set_rows(accumulators, ids, sums)
        step = learning_rate * gradients * tf.math.rsqrt(sums + self.epsilon)
        _set_rows(variable, ids, _rows(variable, ids) - step)


@_keras.register
class RowwiseAdam(Rowwise, keras.optimizers.Adam):
    r"""Adam that touches only the rows with a gradient, also known as lazy Adam.

    For each row r of a table that the batch of step t looks up, with the sum g of its
    gradients,

    $$m_r \leftarrow \beta_1 m_r + (1 - \beta_1) g, \qquad
    v_r \leftarrow \beta_2 v_r + (1 - \beta_2) g^2, \qquad
    w_r \leftarrow w_r - \eta \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t}
    \frac{m_r}{\sqrt{v_r} + \epsilon}$$

    The moments of a row decay when the row is touched.

    Source: Kingma & Ba 2015.

    Args:
        *args: as in `keras.optimizers.Adam`.
        row_multiplier: $\eta$ of rows divided by `learning_rate`; > 0.
        **kwargs: as in `keras.optimizers.Adam`: `learning_rate`, `beta_1`, ..., not
            `amsgrad`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        _checks.require(not self.amsgrad, "`amsgrad` must be False.", "amsgrad=True")

    def update_rows(
        self,
        ids: Tensor,
        gradients: Tensor,
        variable: tf.Variable,
        learning_rate: Tensor,
    ) -> None:
        # Bias corrections of Kingma & Ba, algorithm 1, of the step and not of the row.
        iteration = tf.cast(self.iterations + 1, gradients.dtype)
        correction = tf.sqrt(1 - self.beta_2**iteration) / (1 - self.beta_1**iteration)

        def moment(slots: str, decay: Tensor, value: Tensor) -> Tensor:
            slot = self.slot(slots, variable)
            return _set_rows(slot, ids, decay * _rows(slot, ids) + (1 - decay) * value)

        mean = moment("_momentums", self.beta_1, gradients)
        square = moment("_velocities", self.beta_2, tf.square(gradients))
        step = learning_rate * correction * mean / (tf.sqrt(square) + self.epsilon)
        _set_rows(variable, ids, _rows(variable, ids) - step)


@_keras.register
class RowwiseSGD(Rowwise, keras.optimizers.SGD):
    r"""Stochastic gradient descent that touches only the rows with a gradient.

    For each row r of a table that the batch looks up, with the sum g of its gradients,

    $$v_r \leftarrow \mu v_r - \eta g, \qquad w_r \leftarrow w_r + v_r$$

    The momentum of a row decays only when the row is touched, so that a rare row
    repeats an old step. "Stochastic Negative Mining", section 5, trains embeddings with
    `row_momentum=False`.

    Args:
        *args: as in `keras.optimizers.SGD`.
        row_momentum: whether rows have momentum too, or only dense weights.
        row_multiplier: $\eta$ of rows divided by `learning_rate`; > 0.
        **kwargs: as in `keras.optimizers.SGD`: `learning_rate`, `momentum`, `nesterov`,
            ... With momentum 0, the default, the optimizer keeps no state.

    Example:
        >>> table, weights = tf.Variable(tf.zeros([3, 1])), tf.Variable([0.0])
        >>> optimizer = RowwiseSGD(learning_rate=0.5, row_multiplier=10.0)
        >>> gradient = tf.IndexedSlices([[1.0]], [2], [3, 1])
        >>> _ = optimizer.apply_gradients(
        ...     [(gradient, table), (tf.constant([1.0]), weights)]
        ... )
        >>> table[2].numpy(), weights.numpy()
        (array([-5.], dtype=float32), array([-0.5], dtype=float32))
    """

    def __init__(self, *args: Any, row_momentum: bool = True, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.row_momentum = _checks.flag("row_momentum", row_momentum)

    def add_variable_from_reference(self, *args: Any, **kwargs: Any) -> Any:
        # Without momentum there are no velocities, which Keras 2 would keep anyway.
        if kwargs.get("variable_name") == "m" and not self.momentum:
            return None
        return super().add_variable_from_reference(*args, **kwargs)

    def update_slices(
        self,
        ids: Tensor,
        gradients: Tensor,
        variable: tf.Variable,
        learning_rate: Tensor,
    ) -> None:
        if self._rows_have_momentum:
            super().update_slices(ids, gradients, variable, learning_rate)
        else:
            self.update_rows(ids, gradients, variable, learning_rate)

    @property
    def _rows_have_momentum(self) -> bool:
        return bool(self.momentum and self.row_momentum)

    def update_rows(
        self,
        ids: Tensor,
        gradients: Tensor,
        variable: tf.Variable,
        learning_rate: Tensor,
    ) -> None:
        if not self._rows_have_momentum:
            # The steps of a row with several gradients add up.
            step = tf.cast(learning_rate * gradients, variable.dtype)
            variable.scatter_sub(tf.IndexedSlices(step, ids))
            return
        step = -learning_rate * gradients
        velocities = self.slot("momentums", variable)
        velocity = self.momentum * _rows(velocities, ids) + step
        _set_rows(velocities, ids, velocity)
        step = self.momentum * velocity + step if self.nesterov else velocity
        _set_rows(variable, ids, _rows(variable, ids) + step)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "row_momentum": self.row_momentum}
