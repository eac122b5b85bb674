"""Fenchel-Young losses of projections on the (n, k)-simplex (Rankmax, section 3.2)."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf._tf.dtypes import as_dtype
from rank4class_tf._tf.exact import violation
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.projections.regularizers import Regularizer, get_regularizer
from rank4class_tf.ops.projections.simplex import from_kth, scaled_by, threshold


@_checks.arguments
def fenchel_young_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    regularizer: str | Regularizer = "euclidean",
    k: int = 1,
    alpha: float = 1.0,
) -> tf.Tensor:
    r"""Fenchel-Young loss of the uniform distribution over the positives.

    $$\Omega^*(z) + \Omega(y) - \langle z, y \rangle, \qquad \Omega(x) = g(x) / \alpha, \qquad
    y_i = k / |Y| \text{ for } i \in Y$$

    with gradient $p_\alpha(z) - y$. A list of fewer than k positives selects as many items as it
    has positives, so that y lies on the simplex. Euclidean with k = 1, $\alpha$ = 1 is the
    Sparsemax loss, entropy with k = 1, $\alpha$ = 1 is softmax cross-entropy.

    Source: Rankmax, section 3.2; Blondel et al. 2020.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, > 0 for a positive; None means 1. The grade does not matter.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        regularizer: `"euclidean"`, $g = \frac{1}{2} \|x\|^2$, `"entropy"`,
            $g = \sum_i x_i \log x_i$, or a `Regularizer`.
        k: number of items to select, in [1, n].
        alpha: > 0.

    Returns:
        `[batch]`, >= 0; 0 for a list without positives.

    Raises:
        ValueError: if `k` exceeds n.

    Example:
        >>> fenchel_young_loss([[0.0, 0.0]], [[0]]).numpy()  # p = (1/2, 1/2)
        array([0.25], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)
    regularizer = get_regularizer(regularizer)
    count = tf.reduce_sum(tf.cast(lists.is_positive, lists.dtype), axis=-1)
    limit = tf.maximum(tf.cast(count, tf.int32), 1)
    # The sum k of both sides cancels what is subtracted.
    lists, top, selected = from_kth(scaled_by(lists, alpha), k, limit)
    level = threshold(lists, regularizer, top, selected)
    total = tf.cast(selected, lists.dtype)
    # The dual form, whose slope in the threshold is 0.
    conjugate = lists.sum(regularizer.conjugate, level, vanishes=regularizer.vanishes)
    conjugate += total * tf.stop_gradient(level)[:, 0]
    share = total / tf.maximum(count, 1)
    own = share * lists.sum_of_positives(lists.positive_scores)
    losses = conjugate + count * regularizer.value(share) - own
    return tf.where(count > 0, losses, 0) / as_dtype(alpha, lists.dtype)


def adaptive_fenchel_young_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
) -> tf.Tensor:
    r"""Fenchel-Young loss with the $\alpha_y$ of Rankmax (k = 1).

    $$\sum_y w_y \frac{\sum_{i \ne y} v_i^2 + R^2}{2 (1 + R)}, \qquad v_i = (z_i - z_y + 1)_+,
    \quad R = \sum_{i \ne y} v_i$$

    That is $\Omega^*(z) + \Omega(y) - z_y$ for $\Omega(x) = \|x\|^2 / (2 \alpha_y(z))$. It is
    convex, >= 0, and 0 exactly where the label is a margin of 1 above all others. Its gradient is
    that of the whole expression: with $\alpha_y$ held constant, $p(z) - y$ is not the gradient of
    any function.

    Source: the outlook of Rankmax, section 5, worked out.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> adaptive_fenchel_young_loss([[0.0, 0.0]], [[0]]).numpy()  # (1 + 1) / (2 (1 + 1))
        array([0.5], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)
    # The label itself adds 1 to both sums.
    total = lists.sum_over_differences(lambda d: violation(d, 1.0)) - 1
    squares = lists.sum_over_differences(lambda d: violation(d, 1.0) ** 2) - 1
    # total**2 / (1 + total), written so that it does not overflow.
    losses = (squares / (1 + total) + total * (total / (1 + total))) / 2
    return lists.sum_of_positives(lists.relevance * losses)
