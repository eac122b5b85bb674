"""Metrics that rank a whole dataset, and so keep every score: mAP and Spearman's r."""

from collections.abc import Iterable
from typing import Any, Self

import tensorflow as tf

from rank4class_tf import _checks, _keras, _registry
from rank4class_tf._lists.batch import Rows
from rank4class_tf._lists.labels import as_numbers, example_weights
from rank4class_tf._tf.gradients import has_nan
from rank4class_tf._tf.raising import check, same_sizes
from rank4class_tf._types import Array, Tensor, TensorPair
from rank4class_tf.metrics.base import Metric
from rank4class_tf.ops.ranks import count_of_all, expected_ranks_of_all


class DatasetMetric(Metric):
    """Base of metrics that rank all examples by each column of the scores.

    They keep all labels and scores, in float64 if that is `dtype`, else in float32;
    `result` sorts them. A subclass sets `num_columns` before it calls `__init__`.
    """

    num_columns: int

    def __init__(
        self, max_examples: int = 10_000, name: str | None = None, dtype: Any = None
    ):
        class_name = type(self).__name__
        super().__init__(name=name or _registry.snake_case(class_name), dtype=dtype)
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                f"`{class_name}` must be built outside the scope of a strategy: its "
                "replicas cannot share the examples that it keeps. Update it with the "
                "predictions."
            )
        self.max_examples = _checks.positive_int("max_examples", max_examples)

        self._dtype_kept = tf.float32
        if tf.as_dtype(self.dtype) == tf.float64:
            # Only on request: not all devices have it.
            self._dtype_kept = tf.float64
        shape = (self.max_examples, self.num_columns)
        self.labels = self._zeros("labels", shape, self._dtype_kept)
        self.scores = self._zeros("scores", shape, self._dtype_kept)
        self.weights_seen = self._zeros("weights_seen", shape[:1], self._dtype_kept)
        self.count = self._zeros("count", (), tf.int64)

    def _zeros(self, name: str, shape: tuple[int, ...], dtype: tf.DType) -> tf.Variable:
        return self.add_weight(
            name=name, shape=shape, initializer="zeros", dtype=dtype.name
        )

    def per_column(self, dtype: tf.DType = tf.float64) -> TensorPair:
        """Returns `compute` of all examples; NaN if too many or if a weight is NaN."""
        labels, scores, weights = (
            tf.cast(tf.transpose(x), dtype) for x in self._examples()
        )
        weights = tf.broadcast_to(weights, tf.shape(labels))
        compute = _keras.with_autograph_of_caller(self.compute)
        values, has_value = compute(labels, scores, weights)
        fits = tf.convert_to_tensor(self.count) <= self.max_examples
        return tf.where(fits & ~has_nan(weights), values, float("nan")), has_value

    def _examples(self) -> list[Tensor]:
        """The labels, scores and weights of all examples."""
        kept = [self.labels, self.scores, self.weights_seen]
        return [tf.convert_to_tensor(x) for x in kept]

    def _value_or_nan(self) -> Tensor:
        values, has_value = self.per_column()
        return tf.where(has_value, values, float("nan"))

    def compute(self, labels: Tensor, scores: Tensor, weights: Tensor) -> TensorPair:
        """The formula: three `[columns, max_examples]` -> values `[columns]`.

        It also returns which values exist.
        """
        # An example that is not yet seen has the weight 0.
        raise NotImplementedError

    def update_state(
        self, y_true: Array, y_pred: Array, sample_weight: Any = None
    ) -> None:
        """Adds a batch; weights are a scalar, `[batch]` or `[batch, 1]`."""
        rows = Rows.of(y_true, y_pred, sample_weight)
        labels = self._as_columns("y_true", rows.y_true)
        scores = self._as_columns("y_pred", rows.y_pred)
        rule = "`y_true` must have the shape of `y_pred`."
        labels = same_sizes(labels, scores, rule, num_axes=2)

        batch_size = tf.shape(scores)[0]
        weights = tf.ones([batch_size], self._dtype_kept)
        given = rows.sample_weight
        if rows.positions is not None:
            given = rows.positions.masked(given)
        if given is not None:
            given = example_weights(given, scores, signed=False)
            weights *= tf.cast(given, self._dtype_kept)
        self._append(labels, scores, weights, tf.cast(batch_size, tf.int64))

    def _as_columns(self, name: str, values: Array) -> Tensor:
        values = as_numbers(name, values)
        if values.shape.rank == 1 and self.num_columns == 1:
            values = values[:, tf.newaxis]
        is_right = values.shape.is_compatible_with([None, self.num_columns])
        rule = f"`{name}` must have the shape [batch, {self.num_columns}]."
        _checks.require(is_right, rule, f"{values.shape}")

        if values.dtype.is_integer and values.dtype.size > 2:
            # What a float holds exactly.
            bits = 53 if self._dtype_kept == tf.float64 else 24
            is_large = tf.abs(tf.cast(values, tf.int64)) > 2**bits
            rule = (
                f"`{name}` must hold whole numbers of at most 2**{bits}, or "
                "floating ones"
            )
            with tf.control_dependencies([check(is_large, values, rule)]):
                values = tf.identity(values)
        return tf.cast(values, self._dtype_kept)

    def _append(
        self, labels: Tensor, scores: Tensor, weights: Tensor, num_new: Tensor
    ) -> None:
        count = tf.convert_to_tensor(self.count)
        total = tf.reshape(count + num_new, [1, 1])
        rule = (
            f"`max_examples`={self.max_examples} must be at least the number of "
            "examples"
        )
        checked = check(total > self.max_examples, total, rule)
        # Under XLA nothing raises: examples too many overwrite the last row; the result
        # is NaN.
        rows = tf.minimum(count + tf.range(num_new), self.max_examples - 1)
        rows = rows[:, tf.newaxis]
        with tf.control_dependencies([checked]):
            _keras.variable(self.labels).scatter_nd_update(rows, labels)
            _keras.variable(self.scores).scatter_nd_update(rows, scores)
            _keras.variable(self.weights_seen).scatter_nd_update(rows, weights)
            self.count.assign_add(num_new)

    def result(self) -> Tensor:
        """Returns the mean over the columns that have a value, 0 if none has."""
        values, has_value = self.per_column(self._dtype_kept)
        total = tf.reduce_sum(tf.where(has_value, values, tf.zeros_like(values)))
        number = tf.reduce_sum(tf.cast(has_value, values.dtype))
        return tf.cast(tf.math.divide_no_nan(total, number), self.dtype)

    def merge_state(self, metrics: Iterable[Self]) -> None:
        """Adds the states of other metrics with the same configuration."""
        for metric in metrics:
            count = tf.convert_to_tensor(metric.count)
            labels, scores, weights = (x[:count] for x in metric._examples())
            self._append(labels, scores, weights, count)


@_registry.register("metric")
class MeanAveragePrecision(DatasetMetric):
    r"""Mean over classes of the average precision of all examples of a dataset.

    $$\frac{1}{C} \sum_c \frac{1}{\sum_{j \in R_c} w_j} \sum_{j \in R_c} w_j
    \frac{\sum_{i \in R_c} w_i 1(s_i \ge s_j)}{\sum_i w_i 1(s_i \ge s_j)}$$

    The scores of each class rank the examples; $R_c$ are those that have the class.
    Classes that no example has are left out. Tied examples count as one step, as in
    scikit-learn's `average_precision_score`. An example whose score is NaN ranks last
    and is never a hit.

    Each of `max_examples` takes `4 * (2 * num_classes + 1)` bytes, twice that for
    float64. In `fit`, Keras asks for the result, which sorts them, after each batch:
    keep `max_examples` small.

    Source: SoDeep (Engilberge et al. 2019), equations 5 and 6.

    Args:
        num_classes: C, >= 1.
        max_examples: >= 1. One example more raises an error or, under XLA, makes the
            result NaN.

    Labels: `[batch, C]`, > 0 for a class that the example has, negative if that is not
    known. Scores: `[batch, C]`.

    Example:
        >>> metric = MeanAveragePrecision(num_classes=2)
        >>> labels = [[1, 0], [0, 1], [1, 1]]
        >>> metric.update_state(labels, [[3.0, 1.0], [2.0, 5.0], [1.0, 4.0]])
        >>> float(metric.result())  # ((1 + 2 / 3) / 2 + 1) / 2
        0.9166666865348816
    """

    def __init__(self, num_classes: int, max_examples: int = 10_000, **kwargs: Any):
        self.num_classes = self.num_columns = _checks.positive_int(
            "num_classes", num_classes
        )
        super().__init__(max_examples, **kwargs)

    def per_class(self) -> Tensor:
        """Returns each class's average precision, `[C]` float64; NaN if absent."""
        return self._value_or_nan()

    def compute(self, labels: Tensor, scores: Tensor, weights: Tensor) -> TensorPair:
        broken = has_nan(labels) | has_nan(weights)
        weights = tf.where(labels >= 0, weights, 0)
        relevant_weights = tf.where(labels > 0, weights, 0)
        ranked = (weights > 0) & ~tf.math.is_nan(scores)
        scores = tf.where(ranked, scores, float("nan"))

        # Sums over the sorted examples give the precision of each one. They go up to
        # the last example that ties with it.
        above, tied = count_of_all(scores)
        falling = tf.where(ranked, -scores, float("inf"))
        order = tf.argsort(falling, axis=1, stable=True)

        def sums_to_last_tie(values: Tensor) -> Tensor:
            # Examples without a rank may be sorted among those with the score -inf;
            # they add 0.
            values = tf.gather(tf.where(ranked, values, 0), order, batch_dims=1)
            # The first sum is 0, that of no examples.
            sums = tf.pad(tf.cumsum(values, axis=1), [[0, 0], [1, 0]])
            return tf.gather(sums, above + tied, batch_dims=1)

        hits = sums_to_last_tie(relevant_weights)
        precision = tf.math.divide_no_nan(hits, sums_to_last_tie(weights))

        total = tf.reduce_sum(relevant_weights, axis=1)
        weighted_sum = tf.reduce_sum(relevant_weights * precision, axis=1)
        value = tf.math.divide_no_nan(weighted_sum, total)
        return tf.where(~broken, value, float("nan")), broken | (total > 0)


@_registry.register("metric")
class SpearmanCorrelation(DatasetMetric):
    r"""Mean over outputs of the dataset's rank correlation of targets and predictions.

    $$r = \mathrm{corr}(\mathrm{rk}(y), \mathrm{rk}(\hat y))$$

    Equal values share their mean rank, as in SciPy's `spearmanr`. Predictions that are
    all the same have the correlation 0; an output whose targets are all the same is
    left out. A target that is NaN is left out; a prediction that is NaN makes the
    result NaN.

    An example of weight 0 is left out; other weights change nothing. Memory and time
    are those of `MeanAveragePrecision`.

    Source: Spearman 1904; SoDeep (Engilberge et al. 2019), equation 2.

    Args:
        num_outputs: outputs of the model, each with its own correlation, >= 1.
        max_examples: as in `MeanAveragePrecision`.

    Labels and predictions: `[batch, num_outputs]`, or `[batch]` for one output.

    Example:
        >>> metric = SpearmanCorrelation()
        >>> metric.update_state([1.0, 2.0, 3.0], [0.1, 0.3, 0.2])
        >>> float(metric.result())  # 1 - 6 * (0 + 1 + 1) / (3 * (9 - 1))
        0.5
    """

    def __init__(self, num_outputs: int = 1, max_examples: int = 10_000, **kwargs: Any):
        self.num_outputs = self.num_columns = _checks.positive_int(
            "num_outputs", num_outputs
        )
        super().__init__(max_examples, **kwargs)

    def per_output(self) -> Tensor:
        """Returns each output's correlation, `[num_outputs]` float64; NaN if none."""
        return self._value_or_nan()

    def compute(self, labels: Tensor, scores: Tensor, weights: Tensor) -> TensorPair:
        known = ~tf.math.is_nan(labels) & (weights > 0)
        count = tf.reduce_sum(tf.cast(known, labels.dtype), axis=1, keepdims=True)

        def centred_ranks(values: Tensor) -> Tensor:
            ranks = expected_ranks_of_all(tf.where(known, values, float("nan")))
            return tf.where(known, ranks - (count + 1) / 2, 0)

        x = centred_ranks(labels)
        y = centred_ranks(scores)
        xx = tf.reduce_sum(x * x, axis=1)
        xy = tf.reduce_sum(x * y, axis=1)
        yy = tf.reduce_sum(y * y, axis=1)
        value = tf.math.divide_no_nan(xy, xx) * tf.sqrt(tf.math.divide_no_nan(xx, yy))
        broken = tf.reduce_any(known & tf.math.is_nan(scores), axis=1)
        return tf.where(~broken, value, float("nan")), tf.reduce_any(x != 0, axis=1)
