"""MeanAveragePrecision."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._tf import exact
from rank4class_tf._tf.nan import has_nan
from rank4class_tf.metrics._dataset_metric import DatasetMetric
from rank4class_tf.ops.ranking.exact import count_of_all


@_registry.register("metric")
class MeanAveragePrecision(DatasetMetric):
    r"""Mean over classes of the average precision of all examples of a dataset.

    $$\frac{1}{C} \sum_c \frac{1}{\sum_{j \in R_c} w_j} \sum_{j \in R_c} w_j
    \frac{\sum_{i \in R_c} w_i 1(s_i \ge s_j)}{\sum_i w_i 1(s_i \ge s_j)}$$

    Each class ranks the examples; $R_c$ are those that have it. Classes that no example has are
    left out. Tied examples count as one step, as in scikit-learn's `average_precision_score`. A NaN
    score ranks last and is never a hit.

    It is exact: all labels and scores are kept, which takes `4 * (2 * num_classes + 1)` bytes for
    each of `max_examples`. Keras computes the result after each batch, which sorts `max_examples`
    scores for each class: in `fit`, keep that number small.

    Source: SoDeep (Engilberge et al. 2019), equations 5 and 6.

    Args:
        num_classes: C, >= 1.
        max_examples: the maximum number of examples, >= 1. One more raises an error or, under XLA,
            makes the result NaN.
        name: name of the metric.
        dtype: dtype of the result.

    Labels: `[batch, C]`, > 0 for a class that the example has, negative if that is not known.
    Scores: `[batch, C]`.

    Raises:
        ValueError: if an argument is not a positive integer, if a shape is wrong, if there are too
            many examples, or under a strategy with several replicas.

    Example:
        >>> metric = MeanAveragePrecision(num_classes=2)
        >>> metric.update_state([[1, 0], [0, 1], [1, 1]], [[3.0, 1.0], [2.0, 5.0], [1.0, 4.0]])
        >>> float(metric.result())  # ((1 + 2 / 3) / 2 + 1) / 2
        0.9166666865348816
    """

    def __init__(
        self,
        num_classes: int,
        max_examples: int = 10_000,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        self.num_classes = _checks.positive_int("num_classes", num_classes)
        super().__init__(self.num_classes, max_examples, name, dtype)

    def per_class(self) -> tf.Tensor:
        """Returns the average precision of each class, `[C]` float64; NaN for an absent class."""
        values, counts = self.per_column()
        return tf.where(counts, values, tf.constant(float("nan"), tf.float64))

    def compute(
        self, labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The formula."""
        broken = has_nan(labels) | has_nan(weights)
        weights = tf.where(labels >= 0, weights, tf.zeros_like(weights))
        relevant = tf.where(labels > 0, weights, tf.zeros_like(weights))
        ranked = (weights > 0) & ~tf.math.is_nan(scores)
        scores = tf.where(ranked, scores, tf.constant(float("nan"), labels.dtype))
        above, tied = count_of_all(scores)
        last = above + tied
        falls = tf.where(ranked, -scores, tf.constant(float("inf"), labels.dtype))
        order = tf.argsort(falls, axis=1, stable=True)

        def up_to_last(values):
            # Examples that are not ranked may lie among scores of -inf, and add nothing.
            values = tf.gather(tf.where(ranked, values, tf.zeros_like(values)), order, batch_dims=1)
            # The first sum is that of no examples.
            sums = tf.pad(exact.running_sums(values), [[0, 0], [1, 0]])
            return tf.gather(sums, last, batch_dims=1)

        precision = tf.math.divide_no_nan(up_to_last(relevant), up_to_last(weights))
        total = exact.sum_of_rows(relevant)
        value = tf.math.divide_no_nan(exact.sum_of_rows(relevant * precision), total)
        value = tf.where(broken, tf.constant(float("nan"), labels.dtype), value)
        return value, broken | (total > 0)
