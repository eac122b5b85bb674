"""MeanAveragePrecisionLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf.layers import Sorter
from rank4class_tf.losses._sorter_loss import AXES, SorterLoss


@_registry.register("loss")
class MeanAveragePrecisionLoss(SorterLoss):
    r"""Mean rank of the positives of each class: a multi-label surrogate of the mean AP.

    $$\ell = \frac{1}{|C|} \sum_{c \in C} \frac{1}{|R_c|} \sum_{i \in R_c} \frac{f(\hat y_c)_i}{d}$$

    with the positives R of the classes C that have one, and the ranks f that a sorter gives to the
    outputs of a class over the batch, or of an example over the classes.

    Source: Engilberge et al. 2019, "SoDeep", equations 5 to 7. The text there leaves the divisors
    open; with these, the loss does not depend on how many positives a batch has.

    Args:
        sorter: a sorter of `rank4class_tf.layers`; None means `LaplaceSorter()`.
        axis: `"batch"` for a list along the batch for each class, as in the paper; `"items"` for a
            list along the classes of each example.
        **kwargs: `alignment`, `reduction`, `name`: see `SorterLoss`.

    Labels: `[batch, n]`, above 0 for a positive; a negative label masks the entry. Outputs:
    `[batch, n]` scores.

    Raises:
        ValueError: if an argument is out of range; in the call, if the shapes differ.

    Example:
        >>> from rank4class_tf.layers import LaplaceSorter
        >>> loss = MeanAveragePrecisionLoss(LaplaceSorter(temperature=0.01))
        >>> float(loss([[1.0], [0.0]], [[0.0], [1.0]]))  # rank 2 of 2
        1.0
    """

    def __init__(self, sorter: Sorter | None = None, axis: str = "batch", **kwargs: Any) -> None:
        super().__init__(sorter, **kwargs)
        self.axis = _checks.one_of("axis", axis, AXES)

    def compute(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """The formula."""
        by_example = self.axis == "items"
        if not by_example:
            labels, outputs = tf.transpose(labels), tf.transpose(outputs)
        positive = tf.cast(labels > 0, outputs.dtype)
        count = tf.reduce_sum(positive, axis=1, keepdims=True)
        share = tf.math.divide_no_nan(positive, count)
        parts = tf.math.multiply_no_nan(self.ranks(outputs, labels >= 0), share)
        if by_example:
            return tf.reduce_sum(parts, axis=1)
        # The mean over the examples is the mean over the classes that have a positive.
        classes = tf.math.count_nonzero(count, dtype=outputs.dtype)
        size = tf.cast(tf.shape(parts)[1], outputs.dtype)
        return tf.math.divide_no_nan(size * tf.reduce_sum(parts, axis=0), classes)

    def misalignment(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """How far the outputs that are not masked are from their labels, `[batch]`."""
        errors = tf.abs(tf.where(labels >= 0, outputs - labels, 0))
        count = tf.math.count_nonzero(labels >= 0, axis=1, dtype=outputs.dtype)
        return tf.math.divide_no_nan(tf.reduce_sum(errors, axis=1), count)
