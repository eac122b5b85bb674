"""Pairwise losses: each positive against each less relevant item."""

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf._tf.exact import violation
from rank4class_tf._tf.gradients import value_and_gradients
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.losses import hinge_by_sorting
from rank4class_tf.ops.losses.lambda_weights import NDCGLambdaWeights

# From this many positives on, sorting costs less than comparing each with every item.
_MANY_POSITIVES = 64


@_checks.arguments
def pairwise_logistic_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    temperature: float = 1.0,
    lambda_weights: NDCGLambdaWeights | None = None,
    label_smoothing: float = 0.0,
) -> tf.Tensor:
    r"""Pairwise logistic loss, PairLog.

    $$\sum_{i,j} 1(y_i > y_j) \, w_{ij} \log\left(1 + e^{-(s_i - s_j) / T}\right)$$

    Source: Rank4Class, equation 2, with $\sigma = 1 / T$ and $w = 1$.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        temperature: > 0.
        lambda_weights: `NDCGLambdaWeights`, for w; None means 1.
        label_smoothing: in [0, 0.5), how much of its loss a pair has the other way round.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> pairwise_logistic_loss([[0.0, 0.0, 0.0]], [[1]]).numpy()  # 2 log(2)
        array([1.3862944], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)

    def pair_loss(difference):
        return _softplus(difference / temperature)

    return _sum_over_pairs(lists, pair_loss, np.log(2.0), lambda_weights, label_smoothing)


@_checks.arguments
def pairwise_hinge_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    margin: float = 1.0,
    lambda_weights: NDCGLambdaWeights | None = None,
    label_smoothing: float = 0.0,
) -> tf.Tensor:
    r"""Pairwise hinge loss.

    $$\sum_{i,j} 1(y_i > y_j) \, w_{ij} \max(0, \eta - (s_i - s_j))$$

    With many positives, no weights and no label smoothing it comes from one sort and prefix sums,
    O(n log n) for each distinct label above 0.

    Source: Joachims 2002, "Optimizing search engines using clickthrough data".

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        margin: $\eta$ > 0.
        lambda_weights: `NDCGLambdaWeights`, for w; None means 1.
        label_smoothing: in [0, 0.5), how much of its loss a pair has the other way round.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> pairwise_hinge_loss([[0.0, 0.5, -1.0]], [[0]]).numpy()  # (1 + 0.5) + (1 - 1)
        array([1.5], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)

    def pair_loss(difference):
        return violation(difference, margin)

    width = lists.num_columns
    few = lists.has_few_columns or width is not None and width <= _MANY_POSITIVES
    if few or lambda_weights is not None or label_smoothing:
        return _sum_over_pairs(lists, pair_loss, margin, lambda_weights, label_smoothing)

    def by_pairs(lists, *tensors):
        return value_and_gradients(
            lambda *tensors: _sum_over_pairs(lists.on(*tensors), pair_loss, margin, None), *tensors
        )

    def by_the_faster(lists, *tensors):
        return tf.cond(
            lists.num_visited <= _MANY_POSITIVES,
            lambda: by_pairs(lists, *tensors),
            lambda: hinge_by_sorting.value_and_gradients(lists, margin),
        )

    return lists.with_ready_gradients(by_the_faster)


def _sum_over_pairs(lists, one_way, own_loss, lambda_weights, label_smoothing=0.0):
    """`sum w_ij f(s_j - s_i)` over the pairs with `y_i > y_j`; `own_loss` is `f(0)`."""
    vanishes = not label_smoothing
    if label_smoothing and not _checks.is_array(label_smoothing):
        _checks.fraction_below("label_smoothing", label_smoothing, 0.5)

    def pair_loss(difference):
        if vanishes:
            return one_way(difference)
        loss, other = one_way(difference), one_way(-difference)
        return (1 - label_smoothing) * loss + label_smoothing * other

    if lambda_weights is not None:
        weights = lambda_weights(lists)
        losses = lists.sum_over_items(
            lambda s, y, g, r, p, y_p, g_p, r_p: tf.where(
                y < y_p, weights.of_pair(g, r, g_p, r_p) * pair_loss(s - p), 0
            ),
            [lists.item_relevance(), weights.item_gains, weights.item_ranks],
            [lists.relevance, weights.positive_gains, weights.positive_ranks],
            vanishes=vanishes,
        )
    elif lists.num_columns == 1 and vanishes:
        # With a single positive every item but itself is less relevant.
        losses = lists.sum_over_differences(pair_loss) - own_loss
    else:
        losses = lists.sum_over_items(
            lambda s, y, p, y_p: tf.where(y < y_p, pair_loss(s - p), 0),
            [lists.item_relevance()],
            [lists.relevance],
            vanishes=vanishes,
        )
    return lists.sum_of_positives(losses)


@tf.custom_gradient
def _softplus(x):
    """`log(1 + e^x)`, of one exponential and one logarithm for value and gradient.

    It takes less time than `tf.math.softplus`, under XLA two thirds of it.
    """
    sigmoid = tf.sigmoid(x)
    # log(1 - sigmoid(-|x|)), which is -log(1 + e^-|x|).
    log_rest = tf.math.log1p(-tf.minimum(sigmoid, 1 - sigmoid))
    return tf.nn.relu(x) - log_rest, lambda upstream: upstream * sigmoid
