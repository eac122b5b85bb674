"""RankmaxLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._tf.exact import violation
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.ops.projections.cap import cap
from rank4class_tf.ops.projections.rankmax import lowest_in_support


@_registry.register("loss")
class RankmaxLoss(RankingLoss):
    r"""Cross-entropy of the Rankmax projection, which adapts to each positive.

    $$\ell(z, Y) = \sum_{y \in Y} -w_y \log \mathrm{Rankmax}(z, y)_y$$

    which for k = 1 is $\sum_y w_y (\log \sum_i (z_i - z_y + \eta)_+ - \log \eta)$. Items that score
    more than the margin $\eta$ below the positive, or below the k-th score if that is lower, have
    no gradient.

    The projection needs the positive, so the loss defines no probabilities for unlabelled scores.
    Use `rank4class_tf.calibrate` to fit a softmax to them.

    Source: Kong et al. 2020, "Rankmax", equations 14 and 15, with margin $\eta$. For k = 1 the
    gradient is 1/S for each other item within the margin and -(s - 1)/S for y, where S is the inner
    sum and s the number of items in it; the paper's equation 16 prints -s/S for y, which
    contradicts its own sum of zero. Where several items tie at the k-th score and y is above it,
    one of them stands for $z_{[k]}$.

    Args:
        k: number of items to select, >= 1; a list of fewer items selects all of them, with loss 0.
        margin: $\eta$ > 0.
        positive_reduction: `"sum"` over the positives as above, or `"mean"`, which divides by
            $\sum_y w_y$.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `k` is not a positive integer, `margin` is not > 0 or `positive_reduction`
            is unknown; in the call, if `k` exceeds the number of items.

    Example:
        >>> loss = RankmaxLoss()
        >>> float(loss([0], [[1.0, 0.5, 0.0]]))  # log(1 + 0.5)
        0.40546...
    """

    def __init__(
        self, k: int = 1, margin: float = 1.0, positive_reduction: str = "sum", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.k = _checks.positive_int("k", k)
        self.margin = _checks.positive_float("margin", margin)
        self.positive_reduction = _checks.one_of(
            "positive_reduction", positive_reduction, ("sum", "mean")
        )

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        margin = self.margin
        # 1 over the projection, before that is cut at 1; a NaN stays one.
        if self.k == 1:
            inverse = lists.sum_of_violations(margin) / margin
        else:
            inverse = _inverse_of_projection(lists, self.k, margin)
        losses = tf.math.log(tf.where(inverse <= 1, tf.ones_like(inverse), inverse))
        total = lists.sum_of_positives(lists.relevance * losses)
        if self.positive_reduction == "sum":
            return total
        return tf.math.divide_no_nan(total, tf.reduce_sum(lists.relevance, axis=-1))


def _inverse_of_projection(lists, k, margin):
    """1 over the projection of each positive before that is cut at 1, `[batch, P]`."""
    level, top, columns, selected = lowest_in_support(lists, k)
    tail = lists.without(columns).sum_of_violations(margin, level)
    top = violation(top[:, tf.newaxis] - level[..., tf.newaxis], margin)
    rest, cut = cap(top, tail, selected[:, tf.newaxis])
    left = tf.cast(selected[:, tf.newaxis] - cut, lists.dtype)
    return rest / (left * violation(lists.positive_scores - level, margin))
