"""Rankmax: a projection on the (n, k)-simplex that adapts to the label (Kong et al. 2020)."""

import tensorflow as tf

from rank4class_tf.ops import _excess, _pairs, _top
from rank4class_tf.ops._cap import cap
from rank4class_tf.ops._gather import gather
from rank4class_tf.ops._margin import violation


def rankmax(scores, class_ids, k=1, margin=1.0):
    r"""The Rankmax projection of the scores for each label.

    $$x_i = \min(1, \max(0, \alpha_y (z_i - \mu_y))), \qquad \mu_y = \min(z_y, z_{[k]}) - \eta$$

    with $\alpha_y$ such that $\sum_i x_i = k$.

    Source: Rankmax, Definition 4, with margin $\eta$.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, the labels; -1 gives zeros.
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
    scores = tf.convert_to_tensor(scores)
    class_ids = tf.cast(class_ids, tf.int32)
    own = gather(scores, tf.maximum(class_ids, 0))
    top, columns, selected = _top_scores(scores, k)
    level = tf.minimum(own, gather(top, selected - 1)[:, tf.newaxis])
    above = violation(scores[:, tf.newaxis] - level[..., tf.newaxis], margin)
    is_top = tf.reduce_any(
        columns[..., tf.newaxis] == tf.range(tf.shape(scores)[1]), axis=1, keepdims=True
    )
    tail = tf.reduce_sum(tf.where(is_top, tf.zeros_like(above), above), axis=-1)
    top = violation(top[:, tf.newaxis] - level[..., tf.newaxis], margin)
    rest, cut = cap(top, tail, selected[:, tf.newaxis])
    width = rest / tf.cast(selected[:, tf.newaxis] - cut, scores.dtype)
    projection = tf.minimum(above / width[..., tf.newaxis], 1)
    return tf.where(class_ids[..., tf.newaxis] >= 0, projection, tf.zeros_like(projection))


def rankmax_loss(scores, class_ids, relevance=None, k=1, margin=1.0, positive_reduction="sum"):
    r"""Cross-entropy of the Rankmax projection.

    $$\ell(z, Y) = \sum_{y \in Y} -w_y \log \mathrm{Rankmax}(z, y)_y$$

    which for k = 1 is $\sum_y w_y (\log \sum_i (z_i - z_y + \eta)_+ - \log \eta)$.

    Source: Rankmax, equations 14 and 15, with margin $\eta$. For k = 1 the gradient is 1/S for each
    other item within the margin and -(s - 1)/S for y, where S is the inner sum and s the number of
    items in it; the paper's equation 16 prints -s/S for y, which contradicts its own sum of zero.
    Where several items tie at the k-th score and y is above it, one of them stands for $z_{[k]}$.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight $w_y$ of each positive; None means 1.
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
    scores = tf.convert_to_tensor(scores)
    class_ids = tf.cast(class_ids, tf.int32)
    if class_ids.shape[1] == 0:
        return tf.zeros_like(scores[:, 0])
    there = class_ids >= 0
    weights = tf.cast(there, scores.dtype)
    if relevance is not None:
        weights = tf.where(there, tf.cast(relevance, scores.dtype), tf.zeros_like(weights))
    if positive_reduction == "mean":
        weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=-1, keepdims=True))
    losses = _losses(scores, tf.maximum(class_ids, 0), weights > 0, k, margin)
    return tf.reduce_sum(weights * losses, axis=-1)


def _losses(scores, class_ids, there, k, margin):
    """The loss of each positive, `[batch, P]`, with its own gradient; 0 where not `there`."""
    function = _loss_of_one if k == 1 else _loss_of_k

    @tf.custom_gradient
    def losses(scores):
        own = tf.gather(scores, class_ids, batch_dims=1)
        return function(scores, own, class_ids, there, k, margin)

    return losses(scores)


def _loss_of_one(scores, own, class_ids, there, k, margin):
    del k
    if own.shape[1] != 1:
        # Padding takes a level that changes nothing.
        own = tf.where(there, own, tf.reduce_max(scores, axis=-1, keepdims=True))
    sums, spread = _excess.excess(scores, own, margin, _visited(there))
    if own.shape[1] != 1:
        sums = _nan_if_any(scores, sums)

    def gradient(upstream):
        items, own_parts = spread(_where(there, upstream / sums))
        return _top.add_columns(items, class_ids, -own_parts)

    return _where(there, tf.math.log(sums / margin)), gradient


def _loss_of_k(scores, own, class_ids, there, k, margin):
    top, columns, selected = _top_scores(scores, k)
    last = selected[:, tf.newaxis] - 1
    kth = tf.gather(top, last, batch_dims=1)
    own = tf.where(there, own, kth)
    level = tf.minimum(own, kth)
    others = _top.without_columns(scores, columns)
    tail, spread = _excess.excess(others, level, margin, _visited(there))
    top_above = violation(top[:, tf.newaxis] - level[..., tf.newaxis], margin)
    rest, cut = cap(top_above, tail, selected[:, tf.newaxis])
    left = tf.cast(selected[:, tf.newaxis] - cut, scores.dtype)
    own_above = violation(own - level, margin)
    inverse = rest / (left * own_above)  # 1 / projection, below 1 where that is cut
    inverse = _nan_if_any(scores, inverse)
    counted = there & ((inverse > 1) | tf.math.is_nan(inverse))

    def gradient(upstream):
        upstream = _where(counted, upstream)
        coefficients = _where(counted, upstream / rest)
        items, level_parts = spread(coefficients)
        position = tf.range(k)
        in_rest = (position >= cut[..., tf.newaxis]) & (position <= last[..., tf.newaxis])
        top_parts = _where(in_rest, coefficients[..., tf.newaxis])
        level_parts += tf.reduce_sum(top_parts, axis=-1)
        own_parts = _where(counted, upstream / own_above)
        level_columns = tf.where(own <= kth, class_ids, tf.gather(columns, last, batch_dims=1))
        return _top.add_columns(
            items,
            tf.concat([columns, class_ids, level_columns], axis=1),
            tf.concat(
                [tf.reduce_sum(top_parts, axis=1), -own_parts, own_parts - level_parts], axis=1
            ),
        )

    return _where(counted, tf.math.log(inverse)), gradient


def _visited(there):
    """How many leading columns hold all that are there, a scalar."""
    return _pairs.visited(tf.cast(there, tf.int32))


def _top_scores(scores, k):
    """The k largest scores, their columns, and how many are to be selected, `[batch]`."""
    n = scores.shape[1]
    if n is not None and k > n:
        raise ValueError(f"`k` must be at most the number of items, {n}. Received: k={k}.")
    top, columns = _top.top_k(scores, k)
    present = tf.cast(top != -float("inf"), tf.int32)
    return top, columns, tf.maximum(tf.reduce_sum(present, axis=-1), 1)


def _nan_if_any(scores, x):
    """`x`, or NaN in a list with a NaN among its scores, which sorting and searching may hide."""
    is_nan = tf.math.is_nan(tf.reduce_sum(scores, axis=-1, keepdims=True))
    return tf.where(is_nan, tf.constant(float("nan"), x.dtype), x)


def _where(condition, x):
    """`x` where the condition holds, else 0, whatever `x` is there."""
    return tf.where(condition, x, tf.zeros([], x.dtype))
