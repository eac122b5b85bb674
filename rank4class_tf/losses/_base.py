"""What all losses share: label forms, masks, weights, dtypes, reduction."""

import functools

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _config, _keras, _labels, _registry
from rank4class_tf.ops._ready_gradients import value_and_gradients, with_ready_gradients
from rank4class_tf.ops._where import where


class RankingLoss(keras.losses.Loss):
    """Base of the losses; a subclass is its formula and its configuration.

    **Labels** `y_true` are class ids (`[batch]`, `[batch, 1]`, `[batch, P]` padded with -1, or
    ragged) or relevance `[batch, n]`, where a negative entry marks an item that is not there.
    **Scores** `y_pred` are `[batch, n]`. The result is one value per list, reduced by Keras. Items
    that are not there change nothing; a list without positives has loss 0 and gradient 0.
    """

    # Whether `compute` gives a list without positives the gradient 0 whatever its scores are, so
    # that they need no cleaning, which takes a large part of the time of a fast loss.
    _cleans_scores = False

    def __init__(
        self,
        *,
        label_format=None,
        max_positives=None,
        reduction="sum_over_batch_size",
        name=None,
    ):
        """Args shared by all losses.

        Args:
            label_format: `"ids"`, `"relevance"`, or None to tell them apart by static shapes:
                labels as wide as the scores (n > 1) are relevance. Ids `[batch, P]` of a
                floating dtype need `"ids"`.
            max_positives: the most positives that a list of relevance labels has, None for no
                bound; 1 for one-hot labels. A bound saves time and memory, and one of at most 16 is
                needed for second derivatives where n is above 16. A list that exceeds it raises in
                eager mode and has a NaN loss in graph mode.
            reduction: `"sum_over_batch_size"`, `"sum"` or `"none"`; `"auto"` is the first.
            name: name of the loss.
        """
        _labels.check_label_format(label_format)
        if max_positives is not None:
            max_positives = _checks.positive_int("max_positives", max_positives)
        super().__init__(
            reduction=_keras.standardize_reduction(reduction),
            name=name or _registry.snake_case(type(self).__name__),
        )
        self.label_format = label_format
        self.max_positives = max_positives

    def compute(self, scores, class_ids, relevance):
        """The formula: `[batch, n]`, `[batch, P]`, `[batch, P]` -> `[batch]`.

        The loss of a list depends on that list alone. The formula is traced for few and for many
        positives where only running tells how many there are.
        """
        raise NotImplementedError

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Computes the loss; weights are a scalar, `[batch]`, `[batch, 1]` or `[batch, n]`."""
        if sample_weight is not None:
            sample_weight = _labels.list_weights(sample_weight, y_true, y_pred, self.label_format)
        return _keras.call_loss(self, y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        """Computes the loss of each list, `[batch]`."""
        lists = _labels.parse(y_true, y_pred, self.label_format, self.max_positives)
        scores, valid = lists.scores, ~lists.invalid
        has_positive = lists.has_positive & valid
        if not self._cleans_scores:
            # Lists that cannot have a loss get harmless scores: no NaN enters their gradient.
            scores = _zeros_unless(has_positive, scores)
        if lists.present is not None:
            scores = where(lists.present, scores, -float("inf"))
        losses = self._over_positives(scores, lists)
        without = where(valid, tf.zeros_like(losses), float("nan"))
        return where(has_positive, losses, without)

    def _over_positives(self, scores, lists):
        """`compute` on as few columns as hold all positives."""
        if lists.surely_few:
            return _labels.over_positives(functools.partial(self.compute, scores), lists)

        def ready(scores):
            def of_columns(class_ids, relevance):
                return value_and_gradients(lambda s: self.compute(s, class_ids, relevance), scores)

            return _labels.over_positives(of_columns, lists)

        # TensorFlow's gradient of a choice made while it runs takes more time, and fails under XLA
        # where the size of the batch is not known.
        return with_ready_gradients(ready, scores)

    def get_config(self):
        """Returns the constructor arguments."""
        return _config.constructor_arguments(self, RankingLoss)

    @classmethod
    def from_config(cls, config):
        """Builds the loss that `get_config` describes."""
        return cls(**config)


@tf.custom_gradient
def _zeros_unless(condition, scores):
    """The scores where the condition holds, else zeros, whose gradient is 0 as it comes."""
    return where(condition, scores, 0.0), lambda upstream: (None, upstream)
