"""Fenchel-Young losses of projections on the (n, k)-simplex (Rankmax, section 3.2)."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf._tf.dtypes import as_dtype
from rank4class_tf._tf.exact import violation
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.projections.regularizers import Regularizer, get_regularizer
from rank4class_tf.ops.projections.simplex import from_kth, scaled_by


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
    threshold = _threshold(lists, regularizer, top, selected)
    total = tf.cast(selected, lists.dtype)
    fixed = tf.stop_gradient(threshold)

    @tf.custom_gradient
    def conjugate(scores):
        # The dual form does not depend on the threshold, to first order; its gradient does.
        def gradient(upstream):
            return upstream * regularizer.project(scores, threshold)

        return regularizer.conjugate(scores, fixed), gradient

    conjugates = lists.sum(conjugate, vanishes=regularizer.vanishes) + total * fixed[:, 0]
    share = total / tf.maximum(count, 1)
    own = share * lists.sum_of_positives(lists.positive_scores)
    losses = conjugates + count * regularizer.value(share) - own
    return tf.where(count > 0, losses, 0) / as_dtype(alpha, lists.dtype)


def _threshold(lists, regularizer, top, selected):
    """The threshold, whose derivative takes no time where nothing asks for it."""
    value = tf.stop_gradient(regularizer.threshold(lists, top, selected))

    @tf.custom_gradient
    def of_scores(scores):
        def gradient(upstream):
            @tf.function(autograph=False)  # Forward-mode differentiation stops all tapes.
            def slopes_of(scores):
                shares = tf.where(lists.mask, regularizer.project(scores, value), 0)
                return tf.gradients(shares, scores)[0]

            slopes = slopes_of(scores)
            total = tf.reduce_sum(slopes, axis=-1, keepdims=True)
            return upstream * tf.math.divide_no_nan(slopes, total)

        return value, gradient

    return of_scores(lists.scores)


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
