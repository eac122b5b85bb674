r"""Projections on the (n, k)-simplex (Rankmax, section 2).

$$\Delta = \{x : \textstyle\sum_i x_i = k, \; 0 \le x_i \le 1\}, \qquad
p_\alpha(z) = \arg\min_{x \in \Delta} -\langle z, x \rangle + g(x) / \alpha$$

Since $p_\alpha(z) = p_1(\alpha z)$, everything is written for $\alpha = 1$. A regulariser is
separable, $g(x) = \sum_i h(x_i)$, and gives $x_i = \min(1, \max(0, (h')^{-1}(z_i - \mu)))$ with the
threshold $\mu$ for which $\sum_i x_i = k$.
"""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.dense import as_lists
from rank4class_tf._lists.lists import Lists
from rank4class_tf._tf.dtypes import as_dtype
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.projections.regularizers import Regularizer, get_regularizer


def euclidean_projection(
    scores: TensorLike, k: int = 1, alpha: TensorLike = 1.0, mask: TensorLike | None = None
) -> tf.Tensor:
    r"""Euclidean projection on the (n, k)-simplex.

    $$x_i = \min(1, \max(0, \alpha (z_i - \mu))), \qquad \textstyle\sum_i x_i = k$$

    Sparsemax is k = 1, $\alpha$ = 1. The Jacobian is exact: with F the items with $0 < x_i < 1$,
    $J v = \alpha \, 1_F (v - \mathrm{mean}_F v)$.

    Source: Rankmax, equation 8.

    Args:
        scores: `[batch, n]`; -inf masks an item.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        k: number of items to select, in [1, n]; a list of fewer items selects all of them.
        alpha: > 0, a scalar or `[batch]`; the larger, the closer to the k largest.

    Returns:
        `[batch, n]`, in [0, 1].

    Raises:
        ValueError: if `k` exceeds n.

    Example:
        >>> euclidean_projection([[2.0, 1.5, 0.0]]).numpy()  # mu = 1.25
        array([[0.75, 0.25, 0.  ]], dtype=float32)
    """
    return simplex_projection(scores, "euclidean", k, alpha, mask)


def entropy_projection(
    scores: TensorLike, k: int = 1, alpha: TensorLike = 1.0, mask: TensorLike | None = None
) -> tf.Tensor:
    r"""Entropy projection on the (n, k)-simplex.

    $$x_i = \min(1, e^{\alpha z_i} / Z), \qquad \textstyle\sum_i x_i = k$$

    Softmax is k = 1. The Jacobian is exact: with F the items with $x_i < 1$,
    $J v = \alpha \, x \, 1_F (v - \sum_F x_j v_j / \sum_F x_j)$.

    Source: Rankmax, section 2.2.

    Args:
        scores: `[batch, n]`; -inf masks an item.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        k: number of items to select, in [1, n]; a list of fewer items selects all of them.
        alpha: > 0, a scalar or `[batch]`, the inverse temperature.

    Returns:
        `[batch, n]`, in [0, 1].

    Raises:
        ValueError: if `k` exceeds n.

    Example:
        >>> entropy_projection([[9.0, 0.0, 0.0]], k=2).numpy()
        array([[1. , 0.5, 0.5]], dtype=float32)
    """
    return simplex_projection(scores, "entropy", k, alpha, mask)


def simplex_projection(
    scores: TensorLike,
    regularizer: str | Regularizer,
    k: int = 1,
    alpha: TensorLike = 1.0,
    mask: TensorLike | None = None,
) -> tf.Tensor:
    r"""Projection on the (n, k)-simplex for any separable regulariser $g(x) = \sum_i h(x_i)$.

    $$x_i = \min(1, \max(0, (h')^{-1}(\alpha (z_i - \mu)))), \qquad \textstyle\sum_i x_i = k$$

    First and second derivatives are exact.

    Source: Rankmax, Theorem 2(b).

    Args:
        scores: `[batch, n]`; -inf masks an item.
        regularizer: `"euclidean"`, `"entropy"` or a `Regularizer`, such as your own.
        k: number of items to select, in [1, n]; a list of fewer items selects all of them.
        alpha: > 0, a scalar or `[batch]`; the larger, the closer to the k largest.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.

    Returns:
        `[batch, n]`, in [0, 1].

    Raises:
        ValueError: if `k` exceeds n or `regularizer` is unknown.

    Example:
        >>> simplex_projection([[2.0, 1.5, 0.0]], "euclidean").numpy()  # mu = 1.25
        array([[0.75, 0.25, 0.  ]], dtype=float32)
    """
    _checks.positive_int("k", k)
    _checks.positive_or_tensor("alpha", alpha)
    regularizer = get_regularizer(regularizer)
    lists, top, selected = from_kth(scaled_by(as_lists(scores, mask=mask), alpha), k)
    total = tf.cast(selected, lists.dtype)[:, tf.newaxis]
    threshold = tf.stop_gradient(regularizer.threshold(lists, top, selected))

    def surplus(threshold):
        return lists.sum(regularizer.project, threshold)[:, tf.newaxis] - total

    with tf.GradientTape() as tape:
        tape.watch(threshold)
        left = surplus(threshold)
    slope = tf.stop_gradient(-tape.gradient(left, threshold))

    @tf.custom_gradient
    def newton_step(left):
        # The surplus is 0 already. Only gradients read the slope, so that a graph for inference,
        # which TFLite and ONNX must be able to express, holds none of it.
        return tf.zeros_like(left), lambda upstream: tf.math.divide_no_nan(upstream, slope)

    # Each step of Newton's method makes derivatives of one order more exact.
    threshold += newton_step(left)
    threshold += newton_step(surplus(threshold))
    return lists.map(regularizer.project, threshold)


def scaled_by(lists: Lists, alpha: TensorLike) -> Lists:
    """The lists with scores times alpha, a scalar or `[batch]`."""
    if isinstance(alpha, float | int) and alpha == 1:
        return lists
    alpha = as_dtype(alpha, lists.dtype)
    if alpha.shape.rank == 0:
        return lists.scaled(alpha)
    rule = "`alpha` must be a number or have one for each list."
    return lists.scaled(same_sizes(alpha, lists.positive_scores, rule)[:, tf.newaxis])


def from_kth(
    lists: Lists, k: int, limit: tf.Tensor | None = None
) -> tuple[Lists, tf.Tensor, tf.Tensor]:
    """The lists relative to their k-th highest score, which keeps the digits of scores near it.

    Args:
        lists: `Lists`.
        k: number of items to select, in [1, n].
        limit: `[batch]` int32, the most items to select; None for no limit.

    Returns:
        The lists minus that score, which is taken as a constant; their k highest `[batch, k]`; and
        how many items to select, `[batch]` int32: a list of fewer items selects all of them.
    """
    top, _, selected = lists.top_k(k)
    if limit is not None:
        selected = tf.minimum(selected, limit)
    kth = tf.stop_gradient(gather(top, selected[:, tf.newaxis] - 1))
    return lists.relative_to(kth), top - kth, selected
