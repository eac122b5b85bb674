"""What the pairwise losses share: the sum over pairs, and the argument `lambda_weights`."""

from collections.abc import Callable

import tensorflow as tf

from rank4class_tf import _keras, ops

_keras.register(ops.NDCGLambdaWeights)


def check_lambda_weights(value: ops.NDCGLambdaWeights | None) -> ops.NDCGLambdaWeights | None:
    """Returns `value`; raises unless it is None or `NDCGLambdaWeights`."""
    if value is not None and not isinstance(value, ops.NDCGLambdaWeights):
        raise ValueError(
            f"`lambda_weights` must be None or `NDCGLambdaWeights`. Received: {value!r}."
        )
    return value


def sum_over_pairs(
    lists: ops.Lists,
    one_way: Callable,
    loss_of_tie: float,
    lambda_weights: ops.NDCGLambdaWeights | None = None,
    label_smoothing: float = 0.0,
    vanishes: bool = False,
) -> tf.Tensor:
    r"""$\sum_{i,j} 1(y_i > y_j) \, w_{ij} f(s_j - s_i)$, `[batch]`.

    Args:
        lists: `Lists`.
        one_way: f, an elementwise function that tends to 0, with its slope, as the difference
            falls.
        loss_of_tie: `f(0)`.
        lambda_weights: for w; None means 1.
        vanishes: whether f is 0 for low differences, without label smoothing; see `Lists.sum`.
        label_smoothing: $\epsilon$: f(d) becomes $(1 - \epsilon) f(d) + \epsilon f(-d)$.
    """
    is_one_way = not label_smoothing

    def pair_loss(difference):
        if is_one_way:
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
            tends_to_zero=is_one_way,
            vanishes=vanishes and is_one_way,
        )
    elif lists.num_columns == 1 and is_one_way:
        # With a single positive every item but itself is less relevant.
        losses = lists.sum_over_differences(pair_loss, vanishes) - loss_of_tie
    else:
        losses = lists.sum_over_items(
            lambda s, y, p, y_p: tf.where(y < y_p, pair_loss(s - p), 0),
            [lists.item_relevance()],
            [lists.relevance],
            tends_to_zero=is_one_way,
            vanishes=vanishes and is_one_way,
        )
    return lists.sum_of_positives(losses)
