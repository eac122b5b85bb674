"""What the losses over ordered negatives share: their arguments, and the weighted sum."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _keras, ops
from rank4class_tf._tf.dtypes import as_dtype
from rank4class_tf._types import TensorLike
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.ops.rank_weights import at_most

# Each negative against the positive, or each score against zero.
KINDS = ("pairwise", "binary")

for _cls in (
    ops.ListedWeights,
    ops.PowerLawWeights,
    ops.Ramp,
    ops.Scaled,
    ops.StaircaseWeights,
    ops.TopKWeights,
    ops.UniformWeights,
):
    _keras.register(_cls)


class OrderedLoss(RankingLoss):
    """Base of the losses with a `kind`, a `phi` and `rank_weights`."""

    def __init__(
        self,
        kind: str = "pairwise",
        phi: str | Callable = "hinge",
        rank_weights: ops.RankWeights | TensorLike | None = None,
        **kwargs: Any,
    ) -> None:
        """Args shared by the losses over ordered negatives.

        Args:
            kind: `"pairwise"` or `"binary"`.
            phi: a margin function; see `ops.get_phi`.
            rank_weights: a `RankWeights` or a list of numbers; None means `TopKWeights(1)`.
            **kwargs: see `RankingLoss`.
        """
        super().__init__(**kwargs)
        self.kind = _checks.one_of("kind", kind, KINDS)
        ops.get_phi(phi)
        self.phi = phi
        self.rank_weights = ops.get_rank_weights(
            ops.TopKWeights(1) if rank_weights is None else rank_weights
        )

    def ordered_weighted_sum(self, negatives: ops.Lists, scale: TensorLike = 1.0) -> tf.Tensor:
        """The ordered weighted loss of the positives against all items of the lists, `[batch]`.

        Args:
            negatives: `Lists` whose items are negatives.
            scale: `[batch]` or a scalar, a factor of the weights.
        """
        phi, scale = ops.get_phi(self.phi), as_dtype(scale, negatives.dtype)
        if self.kind == "pairwise":

            def sum_over_pairs(lists, f):
                return lists.sum_over_items(lambda s, p: f(p - s), tends_to_zero=True)

            of_pairs = _weighted_sum(sum_over_pairs, phi, self.rank_weights, negatives)
            return scale * negatives.sum_of_positives(negatives.relevance * of_pairs)

        def sum_over_negatives(lists, f):
            return lists.sum(lambda s: f(-s), tends_to_zero=True)

        of_negatives = scale * _weighted_sum(sum_over_negatives, phi, self.rank_weights, negatives)
        of_positives = negatives.relevance * phi(negatives.positive_scores)
        total_relevance = tf.reduce_sum(negatives.relevance, axis=-1)
        return negatives.sum_of_positives(of_positives) + total_relevance * of_negatives


def _weighted_sum(sum_over, phi, rank_weights, lists):
    r"""$\sum_j \theta_j \varphi(p - v_{[j]})$, with `sum_over(lists, f)` the sum of f(p - item)."""
    tail = tf.constant(rank_weights.tail, lists.dtype)
    if rank_weights.num_leading == 0:
        return tail * sum_over(lists, phi)
    n = at_most(lists.num_columns_of_items, rank_weights.num_leading)
    theta = rank_weights.leading(n, lists.dtype) - tail
    total = sum_over(lists.highest(n), lambda margins: theta * phi(margins))
    return total + tail * sum_over(lists, phi) if rank_weights.tail else total
