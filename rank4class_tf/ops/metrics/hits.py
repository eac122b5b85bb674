"""Hits, precision and recall at a cutoff: ties in expectation, or of soft ranks."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.metrics.means import ranks_and_relevance, weighted_mean
from rank4class_tf.ops.ranking.exact import Ranks


@_checks.arguments
def hits(ranks: Ranks, k: int) -> tf.Tensor:
    r"""Expected number of positives among the first k.

    $$\sum_{p \in Y} \min\left(1, \frac{(k - a_p)_+}{m_p}\right)$$

    with $a$ items above and $m$ tied, the item itself counted.

    Args:
        ranks: `Ranks`.
        k: positive integer.

    Returns:
        `[batch]`, in `[0, min(k, |Y|)]`.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 1.0, 2.0]], [[1, 0]])
        >>> hits(ranks, k=3).numpy()  # item 0, and item 1 in one of two orders
        array([1.5])
    """
    share = tf.math.divide_no_nan(tf.maximum(k - ranks.above, 0), ranks.tied)
    return tf.reduce_sum(tf.minimum(share, 1), axis=-1)


@_checks.arguments
def precision(ranks: Ranks, k: int) -> tf.Tensor:
    r"""Share of positives among the first k ranks.

    $$\frac{|Y \cap \mathrm{Top}_k|}{k}$$

    Args:
        ranks: `Ranks`.
        k: positive integer. The divisor is k even where a list has fewer items.

    Returns:
        `[batch]`, in [0, 1].

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[0, 2]])
        >>> precision(ranks, k=4).numpy()
        array([0.5])
    """
    return hits(ranks, k) / k


@_checks.arguments
def recall(ranks: Ranks, k: int) -> tf.Tensor:
    r"""Share of the positives that are among the first k ranks.

    $$\frac{|Y \cap \mathrm{Top}_k|}{|Y|}$$

    Args:
        ranks: `Ranks`.
        k: positive integer.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[0, 1]])
        >>> recall(ranks, k=2).numpy()
        array([0.5])
    """
    return tf.math.divide_no_nan(hits(ranks, k), ranks.num_positives)


@_checks.arguments
def soft_recall(
    ranks: TensorLike, relevance: TensorLike, k: int, temperature: float = 1.0
) -> tf.Tensor:
    r"""Recall at k of any ranks of the positives, with a soft cutoff.

    $$\frac{1}{|Y|} \sum_{i \in Y} \sigma\left(\frac{k + 1/2 - \pi(i)}{\tau}\right)$$

    Source: Rax's approximate cutoffs.

    Args:
        ranks: `[batch, P]`, the rank of each positive, >= 1.
        relevance: `[batch, P]`, > 0 for a positive, 0 where padded; grades don't count.
        k: the cutoff, >= 1.
        temperature: $\tau$ > 0, in ranks: the smaller, the sharper the cutoff.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> soft_recall([[1.0, 8.0]], [[1.0, 1.0]], k=2, temperature=0.01).numpy()
        array([0.5], dtype=float32)
    """
    ranks, relevance = ranks_and_relevance(ranks, relevance)
    hits = tf.sigmoid((k + 0.5 - ranks) / temperature)
    return weighted_mean(hits, tf.cast(relevance > 0, ranks.dtype))
