"""Metrics of the best-ranked positive: hit rate, reciprocal rank, rank; ties in expectation."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._tf import exact
from rank4class_tf._tf.where import where
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.metrics.means import ranks_and_relevance, weighted_mean
from rank4class_tf.ops.ranking.exact import Ranks, mean_over_ties, num_counted, reciprocals

# Where several positives tie, the ranks of the tied items are summed in blocks of this many.
_BLOCK = 128


def best_positive(ranks: Ranks) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The group of tied items that holds the best positive.

    Args:
        ranks: `Ranks`.

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


@_checks.arguments
def hit_rate(ranks: Ranks, k: int) -> tf.Tensor:
    r"""Probability that some positive is among the k highest scores, ties in random order.

    With $a$ items above the best positive and $m$ tied with it, $q$ of them positive, and
    $r = \min(\max(k - a, 0), m)$ places left:

    $$1 - \binom{m - q}{r} \Big/ \binom{m}{r} = 1 - \prod_{i=0}^{q-1} \frac{m - r - i}{m - i}$$

    Args:
        ranks: `Ranks`.
        k: positive integer.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[2.0, 2.0, 1.0]], [[0]])
        >>> hit_rate(ranks, k=1).numpy()
        array([0.5])
    """
    above, tied, positives = best_positive(ranks)
    places = tf.clip_by_value(k - above, 0, tied)
    before = tf.range(tf.shape(ranks.tied)[1])[tf.newaxis]
    left = tied[:, tf.newaxis] - tf.cast(before, tied.dtype)
    share = tf.minimum(places[:, tf.newaxis] / tf.maximum(left, 1), 1)
    counted = tf.cast(before, tied.dtype) < positives[:, tf.newaxis]
    log_misses = tf.math.log1p(-tf.where(counted, share, tf.zeros_like(share)))
    return -tf.math.expm1(tf.reduce_sum(log_misses, axis=-1))


@_checks.arguments
def reciprocal_rank(ranks: Ranks, k: int | None = None) -> tf.Tensor:
    r"""Reciprocal rank of the best positive, 0 beyond rank k.

    With $a$ items above the best positive and $m$ tied with it, $q$ of them positive:

    $$\sum_{j=1}^{m-q+1} \frac{1(a + j \le k)}{a + j} \binom{m - j}{q - 1} \Big/ \binom{m}{q}$$

    Args:
        ranks: `Ranks`.
        k: positive integer, or None for all ranks.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> from rank4class_tf import ops
        >>> ranks = ops.ranks_of_positives([[2.0, 2.0, 3.0]], [[0]])
        >>> reciprocal_rank(ranks).numpy()  # (1 / 2 + 1 / 3) / 2
        array([0.41666667])
    """
    above, tied, positives = best_positive(ranks)
    size = num_counted(ranks, k)
    last = tf.minimum(tied - positives + 1, tf.cast(size, above.dtype) - above)

    def add(total, place, probability):
        counted = place <= last[:, tf.newaxis]
        values = probability / (above[:, tf.newaxis] + place)
        return total + tf.reduce_sum(tf.where(counted, values, tf.zeros_like(values)), axis=-1)

    single = mean_over_ties(reciprocals(size), above, tied)
    several = _fold_places(add, tf.zeros_like(single), tied, positives, last)
    return tf.where(positives > 1, several, single)


def soft_reciprocal_rank(ranks: TensorLike, relevance: TensorLike) -> tf.Tensor:
    r"""Reciprocal rank of any ranks of the positives, averaged over them.

    $$\frac{\sum_i y_i / \pi(i)}{\sum_i y_i}$$

    Source: ApproxMRR of TF-Ranking. For one positive it is the reciprocal rank of MRR.

    Args:
        ranks: `[batch, P]`, the rank of each positive, >= 1.
        relevance: `[batch, P]`, its label, 0 where padded.

    Returns:
        `[batch]`, in [0, 1]; 0 for a list without positives.

    Example:
        >>> soft_reciprocal_rank([[1.0, 4.0]], [[3.0, 1.0]]).numpy()  # (3 / 1 + 1 / 4) / (3 + 1)
        array([0.8125], dtype=float32)
    """
    ranks, relevance = ranks_and_relevance(ranks, relevance)
    return weighted_mean(_reciprocal(where(relevance > 0, ranks, 1.0)), relevance)


@tf.custom_gradient
def _reciprocal(x):
    """`tf.math.reciprocal`, but rounded right: that of 1 is 1 on any processor."""
    y = 1 / x
    return y, lambda upstream: tf.raw_ops.ReciprocalGrad(y=y, dy=upstream)


def rank_of_best(ranks: Ranks) -> tf.Tensor:
    r"""Expected rank of the best positive.

    With $a$ items above it and $m$ tied with it, $q$ of them positive: $a + (m + 1) / (q + 1)$.

    Args:
        ranks: `Ranks`.

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


def integer_histogram(
    above: tf.Tensor, tied: tf.Tensor, positives: tf.Tensor, weights: tf.Tensor, max_rank: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Distribution of the rank of the best positive, summed over lists.

    Args:
        above: `[batch]`, the items above the best positive.
        tied: `[batch]`, the items tied with it, itself included, >= 1.
        positives: `[batch]`, the positives among these, >= 1; see `best_positive`.
        weights: `[batch]`, the mass of each list, finite.
        max_rank: positive integer; higher ranks are counted together.

    Returns:
        `[max_rank + 1]` integers, the mass at the ranks `1, ..., max_rank` and above, and their
        unit; see `exact.to_integers`. The mass of a list whose best positives tie is spread over
        their possible ranks.
    """
    single = positives <= 1
    unit = exact.power_of_two(tf.reduce_max(tf.concat([weights, [0]], axis=0)))

    def scatter(rank, mass):
        index = tf.cast(tf.minimum(rank, max_rank + 1), tf.int32) - 1
        return tf.math.unsorted_segment_sum(mass, index, max_rank + 1)

    # Equal mass at the ranks a + 1 to a + m: it sets in at the first and ends after the last. In
    # integers nothing is left over after that.
    width = tf.cast(tied, tf.int64)
    mass = exact.to_integers(tf.where(single, weights, tf.zeros_like(weights)), unit) // width
    end = above + tied + 1
    ends = tf.where(end <= max_rank + 1, mass, tf.zeros_like(mass))
    flat = tf.cumsum(scatter(above + 1, mass) - scatter(end, ends))[:-1]
    beyond = tf.cast(tf.clip_by_value(above + tied - max_rank, 0, tied), tf.int64)
    flat = tf.concat([flat, [tf.reduce_sum(beyond * mass)]], axis=0)

    def add(total, place, probability):
        mass = tf.where(single, tf.zeros_like(weights), weights)[:, tf.newaxis] * probability
        return total + scatter(above[:, tf.newaxis] + place, exact.to_integers(mass, unit))

    return _fold_places(add, flat, tied, positives, tied - positives + 1), unit


def _fold_places(add, start, tied, positives, last):
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
        # The first positive has place j, if none before, with q of those that are left.
        left = tf.maximum(tied - place + 1, 1)
        ratio = tf.where(place > 1, left - positives + 1, positives) / left
        ratio = tf.where(several[:, tf.newaxis], tf.maximum(ratio, 0), tf.zeros_like(ratio))
        probability = probability[:, -1:] * tf.math.cumprod(ratio, axis=1)
        return done + _BLOCK, probability, add(total, place, probability)

    start = (tf.zeros([], tied.dtype), tf.ones_like(tied + tf.zeros([_BLOCK], tied.dtype)), start)
    return tf.while_loop(lambda done, *_: done < end, step, start)[2]
