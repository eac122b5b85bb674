"""SpearmanCorrelation."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._tf import exact
from rank4class_tf.metrics._dataset_metric import DatasetMetric
from rank4class_tf.ops.ranking.exact import expected_ranks_of_all


@_registry.register("metric")
class SpearmanCorrelation(DatasetMetric):
    r"""Mean over outputs of the rank correlation of targets and predictions over a dataset.

    $$r = \mathrm{corr}(\mathrm{rk}(y), \mathrm{rk}(\hat y))$$

    Equal values share their mean rank, as in SciPy's `spearmanr`. Predictions that are all the same
    have the correlation 0; an output whose targets are all the same is left out. A target that is
    NaN is left out; a prediction that is NaN shows in the result.

    It is exact: all targets and predictions are kept, which takes `4 * (2 * num_outputs + 1)` bytes
    for each of `max_examples`. Keras computes the result after each batch, which sorts
    `max_examples` values for each output: in `fit`, keep that number small. An example of weight 0
    is left out; other weights change nothing.

    Source: Spearman 1904; SoDeep (Engilberge et al. 2019), equation 2.

    Args:
        num_outputs: outputs of the model, each with its own correlation, >= 1.
        max_examples: the maximum number of examples, >= 1. One more raises an error or, under XLA,
            makes the result NaN.
        name: name of the metric.
        dtype: dtype of the result.

    Labels and predictions: `[batch, num_outputs]`, or `[batch]` for one output.

    Raises:
        ValueError: if an argument is not a positive integer, if a shape is wrong, if there are too
            many examples, or under a strategy with several replicas.

    Example:
        >>> metric = SpearmanCorrelation()
        >>> metric.update_state([1.0, 2.0, 3.0], [0.1, 0.3, 0.2])
        >>> float(metric.result())  # 1 - 6 * (0 + 1 + 1) / (3 * (9 - 1))
        0.5
    """

    def __init__(
        self,
        num_outputs: int = 1,
        max_examples: int = 10_000,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        self.num_outputs = _checks.positive_int("num_outputs", num_outputs)
        super().__init__(self.num_outputs, max_examples, name, dtype)

    def per_output(self) -> tf.Tensor:
        """Returns the correlation of each output, `[num_outputs]` float64; NaN if it has none."""
        values, counts = self.per_column()
        return tf.where(counts, values, tf.constant(float("nan"), tf.float64))

    def compute(
        self, labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The formula."""
        known = ~tf.math.is_nan(labels) & (weights > 0)
        count = tf.reduce_sum(tf.cast(known, labels.dtype), axis=1, keepdims=True)

        def centred_ranks(values):
            values = tf.where(known, values, tf.constant(float("nan"), labels.dtype))
            ranks = expected_ranks_of_all(values) - (count + 1) / 2
            return tf.where(known, ranks, tf.zeros_like(ranks))

        x, y = centred_ranks(labels), centred_ranks(scores)
        xx, xy, yy = (exact.sum_of_rows(product) for product in (x * x, x * y, y * y))
        value = tf.math.divide_no_nan(xy, xx) * tf.sqrt(tf.math.divide_no_nan(xx, yy))
        broken = tf.reduce_any(known & tf.math.is_nan(scores), axis=1)
        value = tf.where(broken, tf.constant(float("nan"), labels.dtype), value)
        return value, tf.reduce_any(x != 0, axis=1)
