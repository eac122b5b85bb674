"""Squared error of all scores."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf._types import TensorLike


@_checks.arguments
def mean_squared_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    positive_weight: float = 1.0,
    positive_target: float = 1.0,
) -> tf.Tensor:
    r"""Mean squared error, rescaled for many classes.

    $$\frac{1}{n} \left( k \sum_{i : y_i > 0} (s_i - M y_i)^2 + \sum_{i : y_i = 0} s_i^2 \right)$$

    over the n items of the list; $k = M = 1$ is the plain mean squared error.

    Source: Hui & Belkin 2021, "Evaluation of neural architectures trained with square loss vs
    cross-entropy"; Rank4Class, section 4.1.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        positive_weight: k > 0.
        positive_target: M > 0.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> mean_squared_loss([[0.5, 1.0]], [[0]]).numpy()  # ((0.5 - 1)^2 + 1) / 2
        array([0.625], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)
    relevance = lists.item_relevance()
    error = lists.scores - positive_target * relevance
    # Division first: the square of a large score then stays finite as long as it can.
    n = tf.maximum(lists.num_items, 1)[:, tf.newaxis]
    share = tf.where(relevance > 0, tf.constant(positive_weight, n.dtype), 1) / n
    return tf.reduce_sum(share * error * error, axis=-1)
