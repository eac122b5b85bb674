"""The best positive of a list: its ties, and the places that it may have."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf.ops import Ranks

# Where several positives tie, the ranks of the tied items are summed in blocks of this many.
_BLOCK = 128


def best_positive(ranks: Ranks) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The group of tied items that holds the best positive.

    Returns:
        Three `[batch]`: the items above the group, its items, its positives. All 0 for a
        list whose positives are never a hit.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[3.0, 1.0, 1.0, 1.0]], [[1, 2]])
        >>> [x.numpy() for x in best_positive(ranks)]
        [array([1.]), array([3.]), array([2.])]
    """
    infinity = tf.constant(float("inf"), ranks.above.dtype)
    above = tf.where(ranks.tied > 0, ranks.above, infinity)
    best = tf.reduce_min(above, axis=-1, keepdims=True)
    is_best = tf.cast((above == best) & (ranks.tied > 0), ranks.above.dtype)
    positives = tf.reduce_sum(is_best, axis=-1)
    tied = tf.math.divide_no_nan(tf.reduce_sum(ranks.tied * is_best, axis=-1), positives)
    return tf.where(positives > 0, best[:, 0], tf.zeros_like(tied)), tied, positives


def rank_of_best(ranks: Ranks) -> tf.Tensor:
    r"""Expected rank of the best positive.

    With $a$ items above it and $m$ tied with it, $q$ of them positive: $a + (m + 1) / (q + 1)$.

    Returns:
        `[batch]`, in [1, n]; n for a list whose positives have the score NaN.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[2.0, 2.0, 3.0]], [[0]])
        >>> rank_of_best(ranks).numpy()  # (2 + 3) / 2
        array([2.5])
    """
    above, tied, positives = best_positive(ranks)
    return tf.where(positives > 0, above + (tied + 1) / (positives + 1), ranks.num_items)


def fold_places(
    add: Callable, start: Any, tied: tf.Tensor, positives: tf.Tensor, last: tf.Tensor
) -> Any:
    """Folds the places of the first of several positives among tied items.

    Args:
        add: maps a total, places `[places]` from 1 on and their probabilities `[batch, places]`
            to the new total.
        start: the total to start with.
        tied: `[batch]`, the items that are tied.
        positives: `[batch]`, the positives among them; a list with fewer than two adds nothing.
        last: `[batch]`, the last place that counts.
    """
    several = positives > 1
    end = tf.reduce_max(tf.concat([[0], tf.where(several, last, 0 * last)], axis=0))
    tied, positives = tied[:, tf.newaxis], positives[:, tf.newaxis]

    def step(done, probability, total):
        place = done + tf.range(1, _BLOCK + 1, dtype=tied.dtype)
        # Place 1 has the probability q / m, each further place that of the one before it times
        # (left - q + 1) / left.
        left = tf.maximum(tied - place + 1, 1)
        ratio = tf.where(place > 1, left - positives + 1, positives) / left
        ratio = tf.where(several[:, tf.newaxis], tf.maximum(ratio, 0), tf.zeros_like(ratio))
        probability = probability[:, -1:] * tf.math.cumprod(ratio, axis=1)
        return done + _BLOCK, probability, add(total, place, probability)

    start = (tf.zeros([], tied.dtype), tf.ones_like(tied + tf.zeros([_BLOCK], tied.dtype)), start)
    return tf.while_loop(lambda done, *_: done < end, step, start)[2]
