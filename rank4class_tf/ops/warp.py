"""Weighted approximate-rank pairwise loss, WARP (Weston et al. 2011)."""

import tensorflow as tf

from rank4class_tf.ops import _positives
from rank4class_tf.ops._gather import gather
from rank4class_tf.ops._margin import violation
from rank4class_tf.ops._search import searchsorted
from rank4class_tf.ops.ordered_weights import get_weights
from rank4class_tf.ops.random import uniform


def warp_loss(
    scores, class_ids, relevance=None, *, weights, margin=1.0, num_trials=None, seed=None
):
    r"""Hinge losses of the violating negatives, weighted by the rank of the positive.

    A negative i violates y if $v_i > v_y - \eta$; $s_y$ is the number of those. With
    $L(s) = \sum_{j \le s} \theta_j$,

    $$\sum_y w_y \frac{L(s_y)}{s_y} \sum_i (v_i - v_y + \eta)_+$$

    With `num_trials`, negatives are drawn uniformly, with replacement, until one violates y. Where
    the t-th of a list with N negatives is the first, the term of y is

    $$w_y \, L(\lfloor N / t \rfloor) \, (v_i - v_y + \eta)_+$$

    and 0 where none of the first N draws violates it. The positives of a list share the
    draws. The gradient takes the rank as a constant.

    Source: Weston, Bengio, Usunier 2011, "Wsabie"; Rankmax, section 3.3.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight of each positive; None means 1.
        weights: $\theta$, an `OrderedWeights` or a list.
        margin: $\eta$ > 0.
        num_trials: the most draws, or None for the exact rank.
        seed: `[2]` integers, with `num_trials` only; the same seed gives the same draws.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> loss = warp_loss([[1.0, 0.5, 0.75, 0.0]], [[0]], weights=[1.0, 0.5])
        >>> loss.numpy()  # (1 + 0.5) / 2 * (0.5 + 0.75)
        array([0.9375], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)
    negatives = lists.negative_scores()
    dtype = negatives.dtype
    rank_weights = tf.concat(
        [
            tf.zeros([1], dtype),
            tf.cumsum(get_weights(weights).first(tf.shape(negatives)[1], dtype)),
        ],
        axis=0,
    )
    if num_trials is None:
        losses = _exact(lists, negatives, rank_weights, margin)
    else:
        losses = _sampled(lists, negatives, rank_weights, margin, num_trials, seed)
    losses = tf.where(lists.relevance > 0, losses, tf.zeros_like(losses))
    return _positives.keep_nan(tf.reduce_sum(lists.relevance * losses, axis=-1), lists.scores)


def _exact(lists, negatives, rank_weights, margin):
    lists = lists._replace(scores=negatives)
    violators = tf.stop_gradient(
        lists.sum_over_items(lambda s, p: tf.cast(s - p > -margin, s.dtype))
    )
    hinges = lists.sum_over_items(lambda s, p: violation(s - p, margin))
    weight = tf.gather(rank_weights, tf.cast(violators, tf.int32))
    return tf.math.divide_no_nan(weight, violators) * hinges


def _sampled(lists, negatives, rank_weights, margin, num_trials, seed):
    batch = tf.shape(negatives)[0]
    eligible = _positives.is_there(negatives)
    up_to = tf.cumsum(tf.cast(eligible, tf.int32), axis=-1)
    count = tf.cast(up_to[:, -1:], negatives.dtype)
    nth = tf.floor(uniform([batch, num_trials], seed, negatives.dtype) * count) + 1
    ids = searchsorted(up_to, tf.cast(nth, tf.int32))
    drawn = gather(negatives, tf.minimum(ids, tf.shape(negatives)[1] - 1))

    highest_so_far = tf.stop_gradient(drawn)
    step = 1
    while step < num_trials:
        shifted = tf.pad(
            highest_so_far[:, :-step], [[0, 0], [step, 0]], constant_values=drawn.dtype.min
        )
        highest_so_far = tf.maximum(highest_so_far, shifted)
        step *= 2
    bounds = tf.stop_gradient(lists.positive_scores) - margin
    first = searchsorted(highest_so_far, bounds, side="right")
    found = first < num_trials
    first = tf.where(found, first, 0)
    rank = tf.floor(count / tf.cast(first + 1, count.dtype))
    violator = gather(drawn, first)
    hinges = violation(violator - lists.positive_scores, margin)
    losses = tf.gather(rank_weights, tf.cast(rank, tf.int32)) * hinges
    return tf.where(found, losses, tf.zeros_like(losses))
