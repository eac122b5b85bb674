"""The loss of the Rankmax projection (Kong et al. 2020)."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf._tf.exact import violation
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.projections.cap import cap
from rank4class_tf.ops.projections.rankmax import lowest_in_support


@_checks.arguments
def rankmax_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    k: int = 1,
    margin: float = 1.0,
    positive_reduction: str = "sum",
) -> tf.Tensor:
    r"""Cross-entropy of the Rankmax projection.

    $$\ell(z, Y) = \sum_{y \in Y} -w_y \log \mathrm{Rankmax}(z, y)_y$$

    which for k = 1 is $\sum_y w_y (\log \sum_i (z_i - z_y + \eta)_+ - \log \eta)$.

    Source: Rankmax, equations 14 and 15, with margin $\eta$. For k = 1 the gradient is 1/S for each
    other item within the margin and -(s - 1)/S for y, where S is the inner sum and s the number of
    items in it; the paper's equation 16 prints -s/S for y, which contradicts its own sum of zero.
    Where several items tie at the k-th score and y is above it, one of them stands for $z_{[k]}$.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight $w_y$ of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        k: number of items to select, in [1, n]; a list of fewer items selects all of them, with
            loss 0.
        margin: > 0.
        positive_reduction: `"sum"` over the positives as above, or `"mean"`, which divides by
            $\sum_y w_y$.

    Returns:
        `[batch]`, >= 0.

    Raises:
        ValueError: if `k` exceeds n.

    Example:
        >>> rankmax_loss([[1.0, 0.5, 0.0]], [[0]]).numpy()  # log(1 + 0.5)
        array([0.4054651], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)
    # 1 over the projection, before that is cut at 1; a NaN stays one.
    inverse = lists.sum_of_violations(margin) / margin if k == 1 else _of_k(lists, k, margin)
    losses = tf.math.log(tf.where(inverse <= 1, tf.ones_like(inverse), inverse))
    total = lists.sum_of_positives(lists.relevance * losses)
    if positive_reduction == "mean":
        return tf.math.divide_no_nan(total, tf.reduce_sum(lists.relevance, axis=-1))
    if positive_reduction != "sum":
        _checks.one_of("positive_reduction", positive_reduction, ("sum", "mean"))
    return total


def _of_k(lists, k, margin):
    """1 over the projection of each positive before that is cut at 1, `[batch, P]`."""
    level, top, columns, selected = lowest_in_support(lists, k)
    tail = lists.without(columns).sum_of_violations(margin, level)
    top = violation(top[:, tf.newaxis] - level[..., tf.newaxis], margin)
    rest, cut = cap(top, tail, selected[:, tf.newaxis])
    left = tf.cast(selected[:, tf.newaxis] - cut, lists.dtype)
    return rest / (left * violation(lists.positive_scores - level, margin))
