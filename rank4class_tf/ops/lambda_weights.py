"""Weights of pairs by what swapping the two items would change in NDCG."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _config
from rank4class_tf._lists.lists import Lists
from rank4class_tf.ops.gains import ideal_dcg, logarithmic_discount, relative_gain


class PairWeights(NamedTuple):
    """What the weight of a pair of items depends on.

    Attributes:
        item_gains: `[batch, n]`.
        item_ranks: `[batch, n]`.
        positive_gains: `[batch, P]`.
        positive_ranks: `[batch, P]`.
        of_pair: maps an item's gain and rank and a positive's gain and rank to the pair's weight.
    """

    item_gains: tf.Tensor
    item_ranks: tf.Tensor
    positive_gains: tf.Tensor
    positive_ranks: tf.Tensor
    of_pair: Callable


@dataclasses.dataclass(frozen=True)
class NDCGLambdaWeights(_config.Configured):
    r"""Weights of LambdaLoss and LambdaMART, for the pairwise losses.

    $$w_{ij} = n \, \frac{|g_i - g_j|}{\mathrm{idealDCG@}k} \left(
    (1 - f) \left|d(|r_i - r_j|) - d(|r_i - r_j| + 1)\right| + f \left|d(r_i) - d(r_j)\right|
    \right)$$

    with the gain $g = 2^y - 1$, the discount $d(r) = 1 / \log_2(1 + r)$, the exact ranks $r$ and
    the n items of the list. Pairs with no item among the first k weigh 0, and in the second term d
    is 0 beyond rank k. No gradient flows through the weights. Ties count against the model: the
    more relevant item of a pair ranks last among its ties, the less relevant one first.

    Source: Wang et al. 2018, "The LambdaLoss framework"; Burges 2010 (LambdaMART) for f = 1.

    Args:
        top_k: k, or None for no cutoff.
        smooth_fraction: f, in [0, 1].

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> weights = NDCGLambdaWeights(smooth_fraction=1.0)
        >>> from rank4class_tf.losses import PairwiseLogisticLoss
        >>> float(PairwiseLogisticLoss(lambda_weights=weights)([1], [[0.0, 0.0]]))
        0.5116...
    """

    top_k: int | None = None
    smooth_fraction: float = 0.0

    def __post_init__(self):
        if self.top_k is not None:
            _checks.positive_int("top_k", self.top_k)
        _checks.fraction("smooth_fraction", self.smooth_fraction)

    def __call__(self, lists: Lists) -> PairWeights:
        """Returns the `PairWeights` of `Lists`."""
        return _ndcg_pair_weights(lists, self.top_k, self.smooth_fraction)


def _ndcg_pair_weights(lists, top_k, smooth_fraction):
    discount = logarithmic_discount
    first, last = lists.tied_ranks()
    # Gains and ideal DCG have a common factor, which cancels.
    positive_gains = relative_gain(lists.relevance)
    ideal = ideal_dcg(positive_gains, top_k)[:, tf.newaxis]
    scale = tf.math.divide_no_nan(lists.num_items[:, tf.newaxis], ideal)
    positive_gains *= scale

    def discount_up_to_k(rank):
        return discount(rank) if top_k is None else tf.where(rank <= top_k, discount(rank), 0)

    def of_pair(gain_j, rank_j, gain_i, rank_i):
        distance = tf.abs(rank_i - rank_j)
        relative = tf.where(distance > 0, _discount_difference(tf.maximum(distance, 1)), 0)
        absolute = tf.abs(discount_up_to_k(rank_i) - discount_up_to_k(rank_j))
        weight = (gain_i - gain_j) * ((1 - smooth_fraction) * relative + smooth_fraction * absolute)
        if top_k is not None:
            weight = tf.where(tf.minimum(rank_i, rank_j) <= top_k, weight, 0)
        return tf.stop_gradient(weight)

    return PairWeights(
        lists.by_item(positive_gains),
        tf.cast(first, lists.dtype),
        positive_gains,
        tf.cast(lists.at_positives(last), lists.dtype),
        of_pair,
    )


def _discount_difference(rank):
    """`d(r) - d(r + 1)`, without subtracting nearly equal numbers."""
    logs = tf.math.log1p(rank) * tf.math.log1p(rank + 1)
    return np.log(2.0) * tf.math.log1p(1 / (1 + rank)) / logs
