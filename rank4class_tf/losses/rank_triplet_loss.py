"""RankTripletLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf.layers import Sorter
from rank4class_tf.losses._sorter_loss import SorterLoss


@_registry.register("loss")
class RankTripletLoss(SorterLoss):
    r"""Triplet loss on the ranks of a similarity matrix, for retrieval in both directions.

    $$\ell = \frac{1}{d} \sum_i \left(\alpha + \frac{f(s_i)_i - f(s_i)_n}{d}\right)_+
    + \text{the same over the columns}$$

    where $s_i$ is row i of the matrix, i its positive, and n the hardest negative: the one of the
    best rank. Pairs with equal labels are not negatives of each other.

    Source: Engilberge et al. 2019, "SoDeep", equations 9 and 10.

    Args:
        sorter: a sorter of `rank4class_tf.layers`; None means `LaplaceSorter()`.
        margin: $\alpha$ > 0, in ranks over d. None means 1/d, one rank.
        **kwargs: `alignment`, to 1 for a pair and 0 for others, `reduction`, `name`: see
            `SorterLoss`.

    Labels: `[batch]` or `[batch, 1]` numbers, one for each pair; `range(batch)` if all differ.
    Outputs: similarities `[batch, batch]`, those of a pair on the diagonal.

    Raises:
        ValueError: if `margin` is not > 0; in the call, if the outputs are not square.

    Example:
        >>> from rank4class_tf.layers import LaplaceSorter
        >>> loss = RankTripletLoss(LaplaceSorter(temperature=0.01))
        >>> float(loss([0, 1], [[1.0, 0.0], [0.0, 1.0]]))  # each positive is a rank ahead
        0.0
    """

    def __init__(
        self, sorter: Sorter | None = None, margin: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(sorter, **kwargs)
        self.margin = None if margin is None else _checks.positive_float("margin", margin)

    def _checked(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """The labels as they are; raises unless there is one for each row and column."""
        rule = "`y_pred` must be similarities [batch, batch] and `y_true` a number for each pair."
        if not outputs.shape[:1].is_compatible_with(outputs.shape[1:]):
            raise ValueError(f"{rule} Received: shapes {outputs.shape} and {labels.shape}.")
        labels = same_sizes(labels, tf.ones([tf.shape(labels)[0], 1]), rule, axes=2)
        for side in (outputs, tf.transpose(outputs)):
            labels = same_sizes(labels, side, rule)
        return labels

    def compute(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """The formula."""
        size = tf.cast(tf.shape(outputs)[1], outputs.dtype)
        margin = 1 / size if self.margin is None else tf.constant(self.margin, size.dtype)
        same = labels == tf.transpose(labels)

        def of_rows(similarities):
            ranks = self.ranks(similarities)
            own = tf.linalg.diag_part(ranks)
            # A row whose items are all positives has no triplet.
            others = tf.where(same, tf.constant(ranks.dtype.max, ranks.dtype), ranks)
            return tf.nn.relu(margin + own - tf.reduce_min(others, axis=1))

        return of_rows(outputs) + of_rows(tf.transpose(outputs))

    def misalignment(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """How far similarities are from 1 for equal labels and 0 for others, `[batch]`."""
        target = tf.cast(labels == tf.transpose(labels), outputs.dtype)
        return tf.reduce_mean(tf.abs(outputs - target), axis=1)
