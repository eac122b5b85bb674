"""Ordered weighted losses (Reddi et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf._tf.dtypes import as_dtype
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.losses.owl.phi import get_phi
from rank4class_tf.ops.losses.owl.rank_weights import RankWeights, at_most, get_rank_weights

# Each negative against the positive, or each score against zero.
KINDS = ("pairwise", "binary")


def ordered_weighted_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    kind: str = "pairwise",
    phi: str | Callable = "hinge",
    rank_weights: RankWeights | TensorLike,
) -> tf.Tensor:
    r"""Ordered weighted loss; the negatives are the items that are not positive.

    With $v_{[j]}$ the j-th highest negative score, pairwise (POWL) or binary (BOWL):

    $$\sum_y w_y \sum_j \theta_j \varphi(v_y - v_{[j]}), \qquad
    \sum_y w_y \Big( \varphi(v_y) + \sum_j \theta_j \varphi(-v_{[j]}) \Big)$$

    Weights that are constant after the first h need a search for the h highest scores, not a sort.

    Source: Stochastic Negative Mining, definitions 3 and 4.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight $w_y$ of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        kind: `"pairwise"` or `"binary"`.
        phi: the margin function $\varphi$; see `get_phi`.
        rank_weights: $\theta$, a `RankWeights` or a list. Weights beyond the number of negatives
            have no effect.

    Returns:
        `[batch]`, >= 0. NaN where a score is.

    Raises:
        ValueError: if `kind`, `phi` or `rank_weights` is unknown.

    Example:
        >>> ordered_weighted_loss([[1.0, 0.5, 0.0]], [0], rank_weights=[1.0]).numpy()
        array([0.5], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)
    losses = against(lists.negatives(), kind, phi, rank_weights)
    # The highest scores alone would not show a NaN.
    return lists.keep_nan(losses)


def against(
    lists: Lists,
    kind: str,
    phi: str | Callable,
    rank_weights: RankWeights | TensorLike,
    scale: TensorLike = 1.0,
) -> tf.Tensor:
    """The ordered weighted loss of positives against all items of the lists, `[batch]`.

    Args:
        lists: `Lists` whose items are negatives.
        kind: see `ordered_weighted_loss`.
        phi: see `ordered_weighted_loss`.
        rank_weights: see `ordered_weighted_loss`.
        scale: `[batch]` or a scalar, a factor of the weights.
    """
    _checks.one_of("kind", kind, KINDS)
    phi, rank_weights = get_phi(phi), get_rank_weights(rank_weights)
    scale = as_dtype(scale, lists.dtype)
    if kind == "pairwise":

        def sum_over(lists, f):
            return lists.sum_over_items(lambda s, p: f(p - s), vanishes=True)

        of_pairs = _weighted_sum(sum_over, phi, rank_weights, lists)
        return scale * lists.sum_of_positives(lists.relevance * of_pairs)

    def sum_over_negatives(lists, f):
        return lists.sum(lambda s: f(-s), vanishes=True)

    of_negatives = scale * _weighted_sum(sum_over_negatives, phi, rank_weights, lists)
    total_relevance = tf.reduce_sum(lists.relevance, axis=-1)
    return (
        lists.sum_of_positives(lists.relevance * phi(lists.positive_scores))
        + total_relevance * of_negatives
    )


def _weighted_sum(sum_over, phi, rank_weights, lists):
    r"""$\sum_j \theta_j \varphi(p - v_{[j]})$, with `sum_over(lists, f)` the sum of f(p - item)."""
    tail = tf.constant(rank_weights.tail, lists.dtype)
    if rank_weights.num_leading == 0:
        return tail * sum_over(lists, phi)
    n = at_most(lists.num_columns_of_items, rank_weights.num_leading)
    theta = rank_weights.leading(n, lists.dtype) - tail
    total = sum_over(lists.highest(n), lambda margins: theta * phi(margins))
    return total + tail * sum_over(lists, phi) if rank_weights.tail else total
