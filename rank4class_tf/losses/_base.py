"""What all losses share: label forms, masks, weights, dtypes, reduction."""

import functools
from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _config, _keras, _registry
from rank4class_tf._lists.columns import are_surely_few, over_positives
from rank4class_tf._lists.labels import check_label_format, list_weights, parse
from rank4class_tf._lists.lists import Lists, floor, of_columns
from rank4class_tf._tf.gradients import value_and_gradients, with_ready_gradients
from rank4class_tf._types import TensorLike
from rank4class_tf.layers import Probabilities


class RankingLoss(keras.losses.Loss):
    """Base of the losses; a subclass is its formula and its configuration.

    **Labels** `y_true` are class ids (`[batch]`, `[batch, 1]`, `[batch, P]` padded with -1, or
    ragged) or relevance `[batch, n]`, where a negative entry masks the item. **Scores** `y_pred`
    are `[batch, n]`. The result is one value per list, reduced by Keras. Masked items change
    nothing; a list without positives has loss 0 and gradient 0.
    """

    def __init__(
        self,
        *,
        label_format: str | None = None,
        max_positives: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
    ) -> None:
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
        check_label_format(label_format)
        if max_positives is not None:
            max_positives = _checks.positive_int("max_positives", max_positives)
        super().__init__(
            reduction=_keras.standardize_reduction(reduction),
            name=name or _registry.snake_case(type(self).__name__),
        )
        self.label_format = label_format
        self.max_positives = max_positives

    @property
    def num_mined(self) -> int | None:
        """How many of the highest negatives the loss reads; None for all.

        A model may find these among many without gradients and score them alone.
        """
        return None

    @property
    def _searches_positives(self) -> bool:
        """Whether the formula takes a pass over the items for each positive, or sorts these.

        One that does not takes labels of all items as they are, without a search for positives.
        """
        return True

    @property
    def probabilities(self) -> Probabilities | None:
        """The layer that maps scores to the probabilities that the loss fits; None for none.

        They are those of a label that is one class. Where there are none, as where the projection
        needs the label, `rank4class_tf.calibrate` fits a softmax.
        """
        return None

    def compute(self, lists: Lists) -> tf.Tensor:
        """The formula: `Lists` -> `[batch]`.

        The loss of a list depends on that list alone. The formula may use Keras layers. It is
        traced for few and for many positives where only running tells how many there are. What it
        gives for a list without positives does not matter, as long as it is finite.
        """
        raise NotImplementedError

    def __call__(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> tf.Tensor:
        """Computes the loss; weights are a scalar, `[batch]`, `[batch, 1]` or `[batch, n]`."""
        if sample_weight is not None:
            sample_weight = list_weights(sample_weight, y_true, y_pred, self.label_format)
        return _keras.call_loss(self, y_true, y_pred, sample_weight)

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> tf.Tensor:
        """Computes the loss of each list, `[batch]`."""
        labels = parse(y_true, y_pred, self.label_format, self.max_positives)
        counted = labels.has_positive & ~labels.invalid
        losses = self._losses(labels, floor(labels.scores, labels.mask, counted))
        if losses.shape.rank not in (None, 1):
            raise ValueError(
                f"`compute` must return the losses [batch]. Received: shape {losses.shape}."
            )
        nan = tf.constant(float("nan"), losses.dtype)
        return tf.where(counted, losses, tf.where(labels.invalid, nan, tf.zeros_like(nan)))

    def _prepared_compute(self):
        """`compute`, with what is the same in all its calls for a batch."""
        return self.compute

    def _losses(self, labels, floored):
        """`compute` on as few columns as hold all positives."""
        compute = self._prepared_compute()
        few = are_surely_few(labels)
        if not self._searches_positives or few and labels.class_ids is not None:
            return compute(of_columns(floored, labels.class_ids, labels.relevance))

        def of_positives(floored, *columns):
            return compute(of_columns(floored, *columns))

        if few:
            return over_positives(functools.partial(of_positives, floored), labels)

        def ready(floored):
            return over_positives(
                lambda *columns: value_and_gradients(
                    lambda scores: of_positives(scores, *columns), floored
                ),
                labels,
            )

        # TensorFlow's gradient of a choice made while it runs takes more time, and fails under XLA
        # where the size of the batch is not known.
        return with_ready_gradients(ready, floored)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return _config.constructor_arguments(self, RankingLoss)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the loss that `get_config` describes."""
        return cls(**_config.deserialized(config))
