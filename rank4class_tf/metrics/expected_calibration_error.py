"""ExpectedCalibrationError."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._lists.labels import parse
from rank4class_tf._tf.dtypes import as_floating
from rank4class_tf._tf.raising import check
from rank4class_tf.metrics._base import RankingMetric
from rank4class_tf.metrics._exact_sum import ExactSum
from rank4class_tf.metrics._hits import hits


@_registry.register("metric")
class ExpectedCalibrationError(RankingMetric):
    r"""The gap between the predicted probability of the best class and how often it is right.

    $$\mathrm{ECE} = \sum_{b=1}^{M} \frac{|B_b|}{N}
    \left| \mathrm{acc}(B_b) - \mathrm{conf}(B_b) \right|, \qquad
    B_b = \{i : \tfrac{b - 1}{M} < \max_j p_{ij} \le \tfrac{b}{M}\}$$

    0 is perfect: of the examples with the probability 0.8, 80 % are right. With few examples, the
    error is biased upwards. If several classes have the highest probability, the result is the
    expectation over a random choice among them.

    Source: Naeini et al. 2015; Guo et al. 2017, "On Calibration of Modern Neural Networks",
    equation 3.

    Args:
        num_bins: M >= 1.
        probabilities: None if `y_pred` are probabilities; or a layer that converts scores to
            probabilities, such as `layers.Probabilities()`.
        **kwargs: `label_format`, `name`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `num_bins` is not a positive integer. In the call, if a highest probability
            is not in [0, 1]; under XLA, the result becomes NaN instead.

    Example:
        >>> metric = ExpectedCalibrationError()
        >>> metric.update_state([0, 1], [[0.75, 0.25], [0.75, 0.25]])  # right once of two times
        >>> float(metric.result())
        0.25
    """

    higher_is_better = False
    is_mean = False

    def __init__(self, num_bins: int = 15, probabilities: Any = None, **kwargs: Any) -> None:
        self.num_bins = _checks.positive_int("num_bins", num_bins)
        super().__init__(**kwargs)
        self.probabilities = _checks.layer_or_none("probabilities", probabilities)

    def _add_states(self):
        # In each bin, of the weights, the weighted confidence and the weighted accuracy.
        self.sums = ExactSum(self, "sums", (self.num_bins, 3))

    def compute(self, ranks: ops.Ranks) -> list[tf.Tensor]:
        """Whether the best class of each list is right."""
        return [hits(ranks, k=1)]

    def _add_batch(self, y_true, y_pred, sample_weight, exclude):
        if self.probabilities is not None:
            y_pred = self.probabilities(as_floating(y_pred))
        accuracy, weights = self._values_and_weights(
            self.sums.dtype, y_true, y_pred, sample_weight, exclude
        )
        labels = parse(y_true, y_pred, self.label_format, exclude=exclude)
        shares = labels.scores
        if labels.mask is not None:
            shares = tf.where(labels.mask, shares, tf.zeros_like(shares))
        confidence = self._checked(tf.reduce_max(shares, axis=-1), weights > 0)
        terms = tf.stack([weights, weights * confidence, weights * accuracy[:, 0]], axis=-1)
        bins = tf.cast(tf.math.ceil(confidence * self.num_bins), tf.int32) - 1
        self.sums.add(terms, tf.clip_by_value(bins, 0, self.num_bins - 1))

    def _checked(self, confidence, counted):
        """The confidence, NaN where it is not in [0, 1]."""
        # Sums of shares may miss 1 by rounding.
        slack = 1e-5
        bad = ~((confidence >= 0) & (confidence <= 1 + slack)) & counted
        rule = (
            "`y_pred` must be probabilities in [0, 1]; for scores, set `probabilities`, for "
            "example to layers.Probabilities()"
        )
        bad = check(bad[:, tf.newaxis], confidence[:, tf.newaxis], rule)
        confidence = tf.clip_by_value(tf.cast(confidence, self.sums.dtype), 0, 1)
        confidence = tf.where(counted, confidence, tf.zeros_like(confidence))
        return tf.where(bad, tf.constant(float("nan"), confidence.dtype), confidence)

    def result(self) -> tf.Tensor:
        """Returns the error; 0 if there was no list with a positive yet."""
        weight, confidence, accuracy = tf.unstack(self.sums.parts()[0], axis=-1)
        gaps = tf.reduce_sum(tf.abs(accuracy - confidence))
        return tf.cast(tf.math.divide_no_nan(gaps, tf.reduce_sum(weight)), self.dtype)
