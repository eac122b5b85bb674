"""Average precision: of exact ranks, with ties in expectation, and of soft ranks."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._tf.where import where
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.metrics.means import ranks_and_relevance, weighted_mean
from rank4class_tf.ops.ranking.exact import (
    Ranks,
    count_of_all,
    mean_over_ties,
    num_counted,
    reciprocals,
)


@_checks.arguments
def average_precision(
    ranks: Ranks, k: int | None = None, over_all_positives: bool = False
) -> tf.Tensor:
    r"""Average precision over the first k ranks.

    $$\frac{1}{\min(k, |Y|)} \sum_{r \le k} \mathrm{Precision@}r \cdot \mathrm{rel}(r)$$

    In expectation over the order of tied items, a positive with $a$ items above, $Q$ of them
    positive, and $m$ items tied, $q$ of them positive, itself counted in both, adds

    $$\frac{1}{m} \sum_{r=a+1}^{\min(a+m, k)}
    \frac{Q + 1 + (r - a - 1) \frac{q - 1}{m - 1}}{r}$$

    since each of its ranks has probability $1/m$, and each item that is tied with it and comes
    before it is one of the $q - 1$ other positives with probability $(q - 1)/(m - 1)$.

    Args:
        ranks: `Ranks`.
        k: positive integer, or None for all ranks.
        over_all_positives: whether the divisor is $|Y|$, even above k.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[0, 1]])
        >>> average_precision(ranks).numpy()  # (1 / 1 + 2 / 3) / 2
        array([0.83333333])
    """
    above, tied = ranks.above, ranks.tied
    size = num_counted(ranks, k)
    limit = tf.cast(size, above.dtype)
    # Positives in the order of their ranks; one that is never a hit is left out.
    order = tf.where(tied > 0, -above, tf.constant(float("nan"), above.dtype))
    positives_above, positives_tied = (tf.cast(c, above.dtype) for c in count_of_all(order))
    slope = tf.math.divide_no_nan(positives_tied - 1, tied - 1)
    harmonic = mean_over_ties(reciprocals(size), above, tied)
    places = tf.clip_by_value(limit - above, 0, tied)
    added = (positives_above + 1 - slope * (above + 1)) * harmonic
    added += slope * tf.math.divide_no_nan(places, tied)
    total = tf.reduce_sum(tf.where(tied > 0, added, tf.zeros_like(added)), axis=-1)
    positives = ranks.num_positives
    return tf.math.divide_no_nan(
        total, positives if over_all_positives else tf.minimum(limit, positives)
    )


def soft_average_precision(
    ranks: TensorLike, ranks_among_positives: TensorLike, relevance: TensorLike
) -> tf.Tensor:
    r"""Average precision of any ranks of the positives, soft ones too.

    $$\frac{1}{|Y|} \sum_{i \in Y} \frac{\pi_Y(i)}{\pi(i)}$$

    where $\pi_Y$ ranks the positives among themselves.

    Source: Qin et al. 2010, for soft ranks.

    Args:
        ranks: `[batch, P]`, the rank of each positive among all items, >= 1.
        ranks_among_positives: `[batch, P]`, its rank among the positives, >= 1.
        relevance: `[batch, P]`, > 0 for a positive, 0 where padded; grades don't count.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> ap = soft_average_precision([[1.0, 4.0]], [[1.0, 2.0]], [[1.0, 1.0]])
        >>> ap.numpy()  # (1 + 2 / 4) / 2
        array([0.75], dtype=float32)
    """
    ranks, relevance = ranks_and_relevance(ranks, relevance)
    among = tf.convert_to_tensor(ranks_among_positives)
    rule = "`ranks_among_positives` must have the shape of `ranks`."
    precision = same_sizes(among, ranks, rule, axes=2) / where(relevance > 0, ranks, 1.0)
    return weighted_mean(precision, tf.cast(relevance > 0, ranks.dtype))
