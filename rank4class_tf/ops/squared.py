"""Squared error of all scores."""

import tensorflow as tf

from rank4class_tf.ops import _positives


def mean_squared_loss(scores, class_ids, relevance=None, positive_weight=1.0, positive_target=1.0):
    r"""Mean squared error, rescaled for many classes.

    $$\frac{1}{n} \left( k \sum_{i : y_i > 0} (s_i - M y_i)^2 + \sum_{i : y_i = 0} s_i^2 \right)$$

    over the n items of the list; $k = M = 1$ is the plain mean squared error.

    Source: Hui & Belkin 2021, "Evaluation of neural architectures trained with square loss vs
    cross-entropy"; Rank4Class, section 4.1.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        positive_weight: k > 0.
        positive_target: M > 0.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> mean_squared_loss([[0.5, 1.0]], [[0]]).numpy()  # ((0.5 - 1)^2 + 1) / 2
        array([0.625], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)
    relevance = lists.item_relevance()
    error = tf.where(lists.present, lists.scores, 0) - positive_target * relevance
    # Division first: the square of a large score then stays finite as long as it can.
    n = tf.reduce_sum(tf.cast(lists.present, error.dtype), axis=-1, keepdims=True)
    share = tf.where(relevance > 0, tf.constant(positive_weight, n.dtype), 1) / tf.maximum(n, 1)
    return tf.reduce_sum(share * error * error, axis=-1)
