"""Shared code of the metrics over a whole dataset, which keep all scores and labels."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _config, _keras, _registry
from rank4class_tf._lists.labels import as_numbers, checked_weights, example_weights
from rank4class_tf._tf.nan import has_nan
from rank4class_tf._tf.raising import check, same_sizes
from rank4class_tf.metrics._base import Metric


class DatasetMetric(Metric):
    """Base of the metrics of whole columns, which keep all labels and scores as float32.

    They take `4 * (2 * num_columns + 1)` bytes for each of `max_examples`. One more example raises
    an error or, under XLA, makes the result NaN.
    """

    def __init__(
        self, num_columns: int, max_examples: int, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name=name or _registry.snake_case(type(self).__name__), dtype=dtype)
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                f"`{type(self).__name__}` must be built outside the scope of a strategy: its "
                "replicas cannot share the examples that it keeps. Update it with the predictions."
            )
        self.num_columns = _checks.positive_int("num_columns", num_columns)
        self.max_examples = _checks.positive_int("max_examples", max_examples)
        shape = (self.max_examples, self.num_columns)
        self.labels, self.scores, self.weights_seen = (
            self.add_weight(name=name, shape=shape, initializer="zeros", dtype="float32")
            for name, shape in (
                ("labels", shape),
                ("scores", shape),
                ("weights_seen", shape[:1]),
            )
        )
        self.count = self.add_weight(name="count", shape=(), initializer="zeros", dtype="int64")

    def per_column(self, dtype: tf.DType = tf.float64) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `compute` of all examples; too many, and weights that are NaN, make it NaN."""
        labels, scores, weights = (
            tf.cast(tf.transpose(tf.convert_to_tensor(x)), dtype)
            for x in (self.labels, self.scores, self.weights_seen)
        )
        weights = tf.broadcast_to(weights, tf.shape(labels))
        values, counts = _keras.with_autograph_of_caller(self.compute)(labels, scores, weights)
        fits = tf.convert_to_tensor(self.count) <= self.max_examples
        return tf.where(fits & ~has_nan(weights), values, tf.constant(float("nan"), dtype)), counts

    def compute(
        self, labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The formula.

        Args:
            labels: `[columns, examples]`, float32 or float64.
            scores: of the same shape and dtype.
            weights: of the same shape and dtype; an example of weight 0 changes nothing.

        Returns:
            `[columns]` of this dtype, and `[columns]` booleans, False for a column without a value.
        """
        raise NotImplementedError

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch.

        Args:
            y_true: labels `[batch, num_columns]`, or `[batch]` for one column.
            y_pred: scores of the same shape.
            sample_weight: scalar, `[batch]` or `[batch, 1]`; None means 1.

        Raises:
            ValueError: if a shape is wrong, or if there are too many examples.
        """
        labels, scores = (
            self._columns(name, x) for name, x in (("y_true", y_true), ("y_pred", y_pred))
        )
        labels = same_sizes(labels, scores, "`y_true` must have the shape of `y_pred`.", axes=2)
        batch = tf.shape(scores)[0]
        weights = tf.ones([batch])
        if sample_weight is not None:
            weights *= tf.cast(example_weights(checked_weights(sample_weight), scores), tf.float32)
        self._append(labels, scores, weights, tf.cast(batch, tf.int64))

    def _columns(self, name, values):
        values = as_numbers(name, values)
        if values.shape.rank == 1 and self.num_columns == 1:
            values = values[:, tf.newaxis]
        if not values.shape.is_compatible_with([None, self.num_columns]):
            raise ValueError(
                f"`{name}` must have the shape [batch, {self.num_columns}]. "
                f"Received: {tuple(values.shape)}."
            )
        if values.dtype.is_integer and values.dtype.size > 2:
            rule = f"`{name}` must hold whole numbers of at most 2**24, or floating ones"
            raised = check(tf.abs(tf.cast(values, tf.int64)) > 2**24, values, rule)
            with tf.control_dependencies([raised]):
                values = tf.identity(values)
        return tf.cast(values, tf.float32)

    def _append(self, labels, scores, weights, added):
        count = tf.convert_to_tensor(self.count)
        total = tf.reshape(count + added, [1, 1])
        rule = f"`max_examples`={self.max_examples} must be at least the number of examples"
        raised = check(total > self.max_examples, total, rule)
        # Too many overwrite the last place; the count tells that the result is void.
        places = tf.minimum(count + tf.range(added), self.max_examples - 1)[:, tf.newaxis]
        with tf.control_dependencies([raised]):
            for mine, new in (
                (self.labels, labels),
                (self.scores, scores),
                (self.weights_seen, weights),
            ):
                _keras.variable(mine).scatter_nd_update(places, new)
            self.count.assign_add(added)

    def result(self) -> tf.Tensor:
        """Returns the mean over the columns that have a value, 0 if none has."""
        # Float64 only if it is asked for: not all devices have it.
        wide = tf.as_dtype(self.dtype) == tf.float64
        values, counts = self.per_column(tf.float64 if wide else tf.float32)
        total = tf.reduce_sum(tf.where(counts, values, tf.zeros_like(values)))
        mean = tf.math.divide_no_nan(total, tf.reduce_sum(tf.cast(counts, values.dtype)))
        return tf.cast(mean, self.dtype)

    def merge_state(self, metrics: Any) -> None:
        """Adds the states of other metrics with the same configuration."""
        for metric in metrics:
            count = int(tf.convert_to_tensor(metric.count))
            states = (metric.labels, metric.scores, metric.weights_seen)
            labels, scores, weights = (tf.convert_to_tensor(state)[:count] for state in states)
            self._append(labels, scores, weights, tf.constant(count, tf.int64))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {
            **_config.constructor_arguments(self, type(self)),
            "name": self.name,
            "dtype": self.dtype,
        }
