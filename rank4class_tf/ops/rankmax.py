"""Rankmax: an adaptive projection on the simplex (Kong et al. 2020)."""

import tensorflow as tf

from rank4class_tf.ops import _positives


def rankmax_loss(scores, class_ids, relevance=None, margin=1.0):
    r"""Cross-entropy of the Rankmax projection on the simplex (k = 1).

    $$\sum_{y} w_y \left( \log \sum_i (z_i - z_y + \eta)_+ - \log \eta \right)$$

    Source: Rankmax, equations 14 and 15, with margin $\eta$. The gradient is 1/S for each other
    item within the margin and -(s - 1)/S for y, where S is the inner sum and s the number of items
    in it; the paper's equation 16 prints -s/S for y, which contradicts its own sum of zero.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight of each positive; None means 1.
        margin: > 0.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> rankmax_loss([[1.0, 0.5, 0.0]], [[0]]).numpy()  # log(1 + 0.5)
        array([0.4054651], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)
    sums = lists.sum_over_items(lambda s, p: tf.nn.relu(s - p + margin))
    sums = tf.where(lists.relevance > 0, sums, tf.ones_like(sums))
    return tf.reduce_sum(lists.relevance * tf.math.log(sums / margin), axis=-1)
