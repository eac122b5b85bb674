"""Average precision of a long list with a weight for each item."""

import tensorflow as tf

from rank4class_tf._tf import exact
from rank4class_tf._tf.nan import has_nan
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.ranking.exact import count_of_all


def weighted_average_precision(
    relevance: TensorLike,
    scores: TensorLike,
    weights: TensorLike,
    dtype: tf.DType = tf.float64,
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Average precision with weights, where tied items count as one step.

    $$\frac{1}{\sum_{j \in R} w_j} \sum_{j \in R} w_j
    \frac{\sum_{i \in R} w_i 1(s_i \ge s_j)}{\sum_i w_i 1(s_i \ge s_j)}$$

    Source: scikit-learn's `average_precision_score`.

    Args:
        relevance: `[batch, n]`, > 0 for the items of R; a negative entry masks the item.
        scores: `[batch, n]`; a NaN ranks last and is never a hit.
        weights: `[batch, n]`, >= 0.
        dtype: that of the result, float32 or float64.

    Returns:
        `[batch]`, NaN for a list with a relevance or weight that is NaN; and `[batch]` booleans,
        False for a list without relevant items, whose value is 0.

    Example:
        >>> value, _ = weighted_average_precision([[1, 0, 1]], [[3.0, 2.0, 1.0]], [[1.0, 1.0, 1.0]])
        >>> value.numpy()  # (1 + 2 / 3) / 2
        array([0.83333333])
    """
    relevance, scores, weights = (
        tf.cast(tf.convert_to_tensor(x), dtype) for x in (relevance, scores, weights)
    )
    relevance = same_sizes(
        relevance, scores, "`relevance` must have the shape of `scores`.", axes=2
    )
    weights = same_sizes(weights, scores, "`weights` must have the shape of `scores`.", axes=2)
    broken = has_nan(relevance) | has_nan(weights)
    weights = tf.where(relevance >= 0, weights, tf.zeros_like(weights))
    relevant = tf.where(relevance > 0, weights, tf.zeros_like(weights))
    ranked = (weights > 0) & ~tf.math.is_nan(scores)
    scores = tf.where(ranked, scores, tf.constant(float("nan"), dtype))
    above, tied = count_of_all(scores)
    last = above + tied
    falls = tf.where(ranked, -scores, tf.constant(float("inf"), dtype))
    order = tf.argsort(falls, axis=1, stable=True)

    def up_to_last(values):
        # Those that are not ranked may lie among scores of -inf, and add nothing.
        values = tf.gather(tf.where(ranked, values, tf.zeros_like(values)), order, batch_dims=1)
        # A shift by one: no rank is the sum of none.
        sums = tf.pad(exact.running_sums(values), [[0, 0], [1, 0]])
        return tf.gather(sums, last, batch_dims=1)

    precision = tf.math.divide_no_nan(up_to_last(relevant), up_to_last(weights))
    total = exact.sum_of_rows(relevant)
    value = tf.math.divide_no_nan(exact.sum_of_rows(relevant * precision), total)
    return tf.where(broken, tf.constant(float("nan"), dtype), value), broken | (total > 0)
