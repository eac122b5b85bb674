"""OrderedWeightedLoss."""

from typing import Any, Self

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.losses._ordered import OrderedLoss


@_registry.register("loss")
class OrderedWeightedLoss(OrderedLoss):
    r"""A loss over the negatives in the order of their scores, with a weight for each rank.

    With $v_{[j]}$ the j-th highest score of an item that is not positive, `kind="pairwise"` is the
    first and `kind="binary"` the second of

    $$\sum_y w_y \sum_j \theta_j \varphi(v_y - v_{[j]}), \qquad
    \sum_y w_y \Big( \varphi(v_y) + \sum_j \theta_j \varphi(-v_{[j]}) \Big)$$

    Weights that are constant after the first h need a search for the h highest scores, not a sort.
    Convex where $\varphi$ is convex and the weights do not rise. With `TopKWeights(k)` it bounds
    the 0/1 loss of the k best (binary: twice that loss) from above.

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large Output Spaces",
    definitions 3 and 4, theorems 2 and 3.

    Args:
        kind: `"pairwise"` or `"binary"`.
        phi: `"hinge"`, `"squared_hinge"`, `"logistic"`, `"exponential"`, `"ramp"`,
            `ops.Ramp(width)`, `ops.Scaled(phi, scale)`, or an elementwise function of a tensor of
            margins.
        rank_weights: $\theta$: `TopKWeights(k)`, `UniformWeights()`, `PowerLawWeights(exponent)`,
            `StaircaseWeights(steps)` or a list of numbers, 0 after its end. None means
            `TopKWeights(1)`.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `kind`, `phi` or `rank_weights` is unknown.

    Example:
        >>> loss = OrderedWeightedLoss(rank_weights=[1.0, 0.5])
        >>> float(loss([0], [[1.0, 0.5, 0.0, 0.75]]))  # 1 * 0.75 + 0.5 * 0.5
        1.0
    """

    @property
    def num_mined(self) -> int | None:
        """How many of the highest negatives have a weight."""
        return None if self.rank_weights.tail else self.rank_weights.num_leading

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        # The highest scores by themselves would not show a NaN.
        return lists.keep_nan(self.ordered_weighted_sum(lists.negatives()))

    @classmethod
    def crammer_singer(cls, **kwargs: Any) -> Self:
        """The multiclass SVM of Crammer and Singer (2001): only the highest negative."""
        return cls("pairwise", "hinge", ops.TopKWeights(1), **kwargs)

    @classmethod
    def weston_watkins(cls, **kwargs: Any) -> Self:
        """The multiclass SVM of Weston and Watkins (1998): all negatives alike."""
        return cls("pairwise", "hinge", ops.UniformWeights(), **kwargs)

    @classmethod
    def lee(cls, **kwargs: Any) -> Self:
        """The multiclass SVM of Lee, Lin and Wahba (2004): each score against zero."""
        return cls("binary", "hinge", ops.UniformWeights(), **kwargs)

    @classmethod
    def top_k_svm(cls, k: int, **kwargs: Any) -> Self:
        """The top-k SVM of Lapin, Hein and Schiele (2015): the mean over the k highest."""
        return cls("pairwise", "hinge", ops.TopKWeights(k), **kwargs)
