"""Spearman's rank correlation."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._tf import exact
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.ranking.exact import expected_ranks_of_all


@_checks.arguments
def spearman_correlation(
    targets: TensorLike,
    scores: TensorLike,
    mask: TensorLike | None = None,
    dtype: tf.DType = tf.float64,
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Correlation of the ranks of targets and scores, equal ones sharing their mean rank.

    $$r = \mathrm{corr}(\mathrm{rk}(y), \mathrm{rk}(s))$$

    Source: Spearman 1904.

    Args:
        targets: `[batch, d]`; a NaN masks the item.
        scores: `[batch, d]`.
        mask: booleans `[batch, d]`, False for an item that is masked; None means none.
        dtype: that of the result, float32 or float64.

    Returns:
        `[batch]`: 0 for scores that are all the same, NaN where a score is; and `[batch]`
        booleans, False for a list whose targets are all the same, which has no correlation.

    Example:
        >>> value, counts = spearman_correlation([[1.0, 2.0, 3.0]], [[0.1, 0.3, 0.2]])
        >>> value.numpy(), counts.numpy()
        (array([0.5]), array([ True]))
    """
    targets, scores = (tf.cast(tf.convert_to_tensor(x), dtype) for x in (targets, scores))
    targets = same_sizes(targets, scores, "`targets` must have the shape of `scores`.", axes=2)
    known = ~tf.math.is_nan(targets)
    if mask is not None:
        known &= _checks.mask(mask, scores)
    count = tf.reduce_sum(tf.cast(known, dtype), axis=1, keepdims=True)

    def centred_ranks(values):
        values = tf.where(known, values, tf.constant(float("nan"), dtype))
        ranks = expected_ranks_of_all(values) - (count + 1) / 2
        return tf.where(known, ranks, tf.zeros_like(ranks))

    x, y = centred_ranks(targets), centred_ranks(scores)
    xx, xy, yy = (exact.sum_of_rows(product) for product in (x * x, x * y, y * y))
    value = tf.math.divide_no_nan(xy, xx) * tf.sqrt(tf.math.divide_no_nan(xx, yy))
    broken = tf.reduce_any(known & tf.math.is_nan(scores), axis=1)
    value = tf.where(broken, tf.constant(float("nan"), dtype), value)
    return value, tf.reduce_any(x != 0, axis=1)
