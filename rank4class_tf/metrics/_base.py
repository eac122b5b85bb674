"""What all metrics share: label forms, masks, weights, accumulation."""

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _config, _labels, _registry


class RankingMetric(keras.metrics.Metric):
    """Base of the metrics; a subclass is the formula of one list and its configuration.

    The result is the weighted mean over lists, a list without positives left out. **Labels**
    `y_true` are class ids (`[batch]`, `[batch, 1]`, `[batch, P]` padded with -1, or ragged) or
    relevance `[batch, n]`, where a negative entry marks an item that is not there. **Scores**
    `y_pred` are `[batch, n]`; a NaN ranks last and is never a hit. Ties are broken at random, in
    expectation, so that equal scores give chance level.
    """

    def __init__(self, *, label_format=None, name=None, dtype=None):
        """Args shared by all metrics.

        Args:
            label_format: `"ids"`, `"relevance"`, or None to tell them apart by static shapes:
                labels as wide as the scores (n > 1) are relevance.
            name: name of the metric.
            dtype: dtype of the result; sums are kept in float64.
        """
        _labels.check_label_format(label_format)
        super().__init__(name=name or _registry.snake_case(type(self).__name__), dtype=dtype)
        self.label_format = label_format
        # A float64 sum of 10**7 examples is exact to 1e-9; a float32 one is not to 1e-3.
        self.total, self.weight = (
            self.add_weight(name=name, shape=(), initializer="zeros", dtype="float64")
            for name in ("total", "weight")
        )

    def compute(self, scores, class_ids, relevance):
        """The formula: `[batch, n]`, `[batch, P]`, `[batch, P]` -> `[batch]`.

        An item that is not there has the score NaN.
        """
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch; weights are a scalar, `[batch]`, `[batch, 1]` or `[batch, n]`."""
        lists = _labels.parse(y_true, y_pred, self.label_format)
        scores = lists.scores
        if lists.present is not None:
            scores = tf.where(lists.present, scores, tf.constant(float("nan"), scores.dtype))
        values = tf.cast(self.compute(scores, lists.class_ids, lists.relevance), tf.float64)
        values = tf.where(lists.invalid, tf.constant(float("nan"), tf.float64), values)
        counted = lists.has_positive | lists.invalid
        weights = tf.cast(counted, tf.float64)
        if sample_weight is not None:
            sample_weight = _labels.list_weights(sample_weight, y_true, y_pred, self.label_format)
            weights *= tf.cast(sample_weight, tf.float64)
        self.total.assign_add(tf.reduce_sum(tf.where(counted, values, 0.0) * weights))
        self.weight.assign_add(tf.reduce_sum(weights))

    def result(self):
        """Returns the weighted mean, 0 before any list with a positive."""
        total, weight = tf.convert_to_tensor(self.total), tf.convert_to_tensor(self.weight)
        return tf.cast(tf.math.divide_no_nan(total, weight), self.dtype)

    def get_config(self):
        """Returns the constructor arguments."""
        return _config.constructor_arguments(self, RankingMetric)

    @classmethod
    def from_config(cls, config):
        """Builds the metric that `get_config` describes."""
        return cls(**config)
