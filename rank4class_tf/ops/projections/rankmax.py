"""Rankmax: a projection on the (n, k)-simplex that adapts to the label (Kong et al. 2020)."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.dense import as_lists
from rank4class_tf._lists.lists import Lists
from rank4class_tf._tf.exact import violation
from rank4class_tf._tf.gather import gather
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.projections.cap import cap


def rankmax(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    k: int = 1,
    margin: float = 1.0,
    mask: TensorLike | None = None,
) -> tf.Tensor:
    r"""The Rankmax projection of the scores for each label.

    $$x_i = \min(1, \max(0, \alpha_y (z_i - \mu_y))), \qquad \mu_y = \min(z_y, z_{[k]}) - \eta$$

    with $\alpha_y$ such that $\sum_i x_i = k$.

    Source: Rankmax, Definition 4, with margin $\eta$.

    Args:
        scores: `[batch, n]`, or `Lists`, which hold the labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, the labels; -1 gives zeros.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        k: number of items to select, in [1, n]; a list of fewer items selects all of them.
        margin: $\eta$ > 0.

    Returns:
        `[batch, P, n]`, in [0, 1].

    Raises:
        ValueError: if `k` exceeds n.

    Example:
        >>> rankmax([[1.0, 0.5, 0.0]], [[0]]).numpy()  # 1 and 1/2 above 1 - 1, over their sum
        array([[[0.6666667 , 0.33333334, 0.        ]]], dtype=float32)
    """
    _checks.positive_int("k", k)
    _checks.positive_or_tensor("margin", margin)
    lists = as_lists(scores, class_ids, mask=mask)
    level, top, columns, selected = lowest_in_support(lists, k)
    above = lists.violations(margin, level)
    is_top = tf.reduce_any(
        columns[..., tf.newaxis] == tf.range(lists.num_columns_of_items), axis=1, keepdims=True
    )
    tail = tf.reduce_sum(tf.where(is_top, tf.zeros([], lists.dtype), above), axis=-1)
    top = violation(top[:, tf.newaxis] - level[..., tf.newaxis], margin)
    rest, cut = cap(top, tail, selected[:, tf.newaxis])
    width = rest / tf.cast(selected[:, tf.newaxis] - cut, lists.dtype)
    projection = tf.minimum(above / width[..., tf.newaxis], 1)
    return tf.where(lists.is_positive[..., tf.newaxis], projection, 0)


def lowest_in_support(lists: Lists, k: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    r"""For each positive $\min(z_y, z_{[k]})$: the support ends a margin below this score.

    Args:
        lists: `Lists`.
        k: number of items to select, in [1, n].

    Returns:
        The level `[batch, P]`; the k highest scores `[batch, k]`, their columns, and how many of
        them to select, `[batch]`.
    """
    top, columns, selected = lists.top_k(k)
    kth = gather(top, selected[:, tf.newaxis] - 1)
    return tf.minimum(lists.positive_scores, kth), top, columns, selected
