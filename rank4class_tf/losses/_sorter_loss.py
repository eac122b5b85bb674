"""What the losses on ranks of outputs share: outputs of any kind, a sorter, the alignment."""

from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _config, _keras, _registry
from rank4class_tf._lists.labels import as_numbers, example_weights
from rank4class_tf._tf.dtypes import as_dtype
from rank4class_tf._tf.raising import check, same_sizes
from rank4class_tf._types import TensorLike
from rank4class_tf.layers import LaplaceSorter, Sorter
from rank4class_tf.losses._unsaved_layer import UnsavedLayer
from rank4class_tf.losses.alignment_schedule import AlignmentSchedule

AXES = ("batch", "items")


class SorterLoss(UnsavedLayer, keras.losses.Loss):
    r"""Base of the losses on the ranks of outputs; a subclass is its formula.

    With the ranks $f(\hat y)$ that a sorter gives to the d outputs of a list, all losses are
    written in ranks over d, as in the paper, and add $\lambda \, \mathrm{mean} |\hat y - y|$, the
    alignment, which brings outputs and labels to one scale in the first epochs.

    A list lies along the batch, one for each column of the outputs, or along the items, one for
    each row. The result is one value per example, whose mean is the loss; a list along the batch
    is the part of the batch that one device has.

    The sorter is a layer of its own, not a part of the model: it is used as it is, in inference
    mode, and no optimizer of the model changes it.

    Source: Engilberge et al. 2019, "SoDeep: a sorting deep net to learn ranking loss surrogates".
    """

    def __init__(
        self,
        sorter: Sorter | None = None,
        *,
        alignment: float | AlignmentSchedule = 0.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        **others: Any,
    ) -> None:
        r"""Args shared by the losses on ranks of outputs.

        Args:
            sorter: a sorter of `rank4class_tf.layers`; None means `LaplaceSorter()`.
            alignment: $\lambda$ >= 0, a number or an `AlignmentSchedule`.
            reduction: `"sum_over_batch_size"`, `"sum"` or `"none"`; `"auto"` is the first.
            name: name of the loss.
            **others: none; a `TypeError` names the loss and the option that it does not have.

        Raises:
            ValueError: if `sorter` is not a sorter or `alignment` is not >= 0.
        """
        _checks.no_others(self, others)
        if sorter is not None and not isinstance(sorter, Sorter):
            raise ValueError(
                "`sorter` must be None or a sorter of rank4class_tf.layers. "
                f"Received: sorter={sorter!r}."
            )
        super().__init__(
            reduction=_keras.standardize_reduction(reduction),
            name=name or _registry.snake_case(type(self).__name__),
        )
        self.sorter = LaplaceSorter() if sorter is None else sorter
        if not isinstance(alignment, AlignmentSchedule):
            alignment = _checks.non_negative_float("alignment", alignment)
        self.alignment = alignment

    def compute(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """The formula: `[batch, n]`, `[batch, n]` -> `[batch]`, one value per example."""
        raise NotImplementedError

    def ranks(self, outputs: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        """Soft ranks of each row over its length, `[lists, d]` -> `[lists, d]`; 0 if masked."""
        ranks = tf.cast(self.sorter(outputs, mask=mask), outputs.dtype)
        if mask is None:
            return ranks / tf.cast(tf.shape(outputs)[1], ranks.dtype)
        size = tf.reduce_sum(tf.cast(mask, ranks.dtype), axis=1, keepdims=True)
        return tf.math.divide_no_nan(ranks, size)

    def __call__(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> tf.Tensor:
        """Computes the loss; weights are a scalar, `[batch]` or `[batch, 1]`."""
        if sample_weight is not None:
            sample_weight = example_weights(sample_weight, y_pred)
        return _keras.call_loss(self, y_true, y_pred, sample_weight)

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> tf.Tensor:
        """Computes the loss of each example, `[batch]`."""
        outputs = _matrix("y_pred", y_pred)
        outputs = tf.cast(outputs, tf.float64 if outputs.dtype == tf.float64 else tf.float32)
        labels = _matrix("y_true", y_true)
        labels = self._checked(labels, outputs)
        finite = tf.math.is_finite(tf.cast(labels, outputs.dtype))
        bad = check(~finite, labels, "`y_true` must hold finite numbers")
        losses = _keras.with_autograph_of_caller(self.compute)(labels, outputs)
        # A list may lie along the batch.
        losses = tf.where(tf.reduce_any(bad), tf.constant(float("nan"), losses.dtype), losses)
        if isinstance(self.alignment, AlignmentSchedule):
            weight = tf.cast(self.alignment.value, outputs.dtype)
        elif self.alignment:
            weight = as_dtype(self.alignment, outputs.dtype)
        else:
            return losses
        return losses + weight * self.misalignment(labels, outputs)

    def _checked(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """The labels, cast; raises unless the shapes are the same."""
        rule = "`y_true` must have the shape of `y_pred`."
        labels = same_sizes(labels, outputs, rule, axes=2)
        return tf.cast(labels, self._label_dtype(labels, outputs))

    def _label_dtype(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.DType:
        """What the labels are cast to."""
        del labels
        return outputs.dtype

    def misalignment(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """What the alignment brings to 0, `[batch]`."""
        return tf.reduce_mean(tf.abs(outputs - tf.cast(labels, outputs.dtype)), axis=1)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return _config.constructor_arguments(self, SorterLoss)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the loss that `get_config` describes."""
        return cls(**_config.deserialized(config))


def _matrix(argument, values):
    values = as_numbers(argument, values)
    if values.shape.rank == 1:
        values = values[:, tf.newaxis]
    if values.shape.rank != 2:
        raise ValueError(
            f"`{argument}` must have the shape [batch] or [batch, n]. Received: {values.shape}."
        )
    return values
