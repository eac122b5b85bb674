"""SpearmanLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf.layers import Sorter
from rank4class_tf.losses._sorter_loss import AXES, SorterLoss
from rank4class_tf.ops.ranking.exact import expected_ranks_of_all


@_registry.register("loss")
class SpearmanLoss(SorterLoss):
    r"""Squared error of ranks, for regressions in which the order matters, as in Spearman's rho.

    $$\ell = \frac{1}{d} \sum_i \left(\frac{\mathrm{rk}(y)_i - f(\hat y)_i}{d}\right)^2$$

    with the exact ranks rk of the labels, equal ones sharing their mean rank, and the ranks f that
    a sorter gives to the outputs. Spearman's correlation is $1 - 6 d^2 \ell / (d^2 - 1)$ where f
    is exact and nothing ties.

    Source: Engilberge et al. 2019, "SoDeep", equations 2 to 4.

    Args:
        sorter: a sorter of `rank4class_tf.layers`; None means `LaplaceSorter()`.
        axis: `"batch"` for a list along the batch for each output, `"items"` for a list along the
            outputs of each example.
        **kwargs: `alignment`, `reduction`, `name`: see `SorterLoss`.

    Labels: `[batch]`, `[batch, 1]` or `[batch, n]` numbers. Outputs: numbers of that shape.

    Raises:
        ValueError: if an argument is out of range; in the call, if the shapes differ.

    Example:
        >>> from rank4class_tf.layers import LaplaceSorter
        >>> loss = SpearmanLoss(LaplaceSorter(temperature=0.01))
        >>> float(loss([1.0, 2.0], [[3.0], [1.0]]))  # ((2 - 1)^2 + (1 - 2)^2) / 2^3
        0.25
    """

    def __init__(self, sorter: Sorter | None = None, axis: str = "batch", **kwargs: Any) -> None:
        super().__init__(sorter, **kwargs)
        self.axis = _checks.one_of("axis", axis, AXES)

    def _label_dtype(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.DType:
        # The order of the labels may depend on all their digits.
        wide = labels.dtype == tf.float64 or labels.dtype.is_integer and labels.dtype.size > 2
        return tf.float64 if wide else outputs.dtype

    def compute(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """The formula."""
        if self.axis == "batch":
            labels, outputs = tf.transpose(labels), tf.transpose(outputs)
        exact = tf.cast(expected_ranks_of_all(labels), outputs.dtype)
        exact /= tf.cast(tf.shape(labels)[1], outputs.dtype)
        errors = tf.square(exact - self.ranks(outputs))
        return tf.reduce_mean(errors, axis=0 if self.axis == "batch" else 1)
