"""Weighted approximate-rank pairwise loss, WARP (Weston et al. 2011)."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf._tf.exact import violation
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.search import searchsorted
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.losses.owl.rank_weights import RankWeights, get_rank_weights
from rank4class_tf.ops.sampling.random import uniform


@_checks.arguments
def warp_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    rank_weights: RankWeights | TensorLike,
    margin: float = 1.0,
    num_trials: int | None = None,
    seed: TensorLike | None = None,
) -> tf.Tensor:
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
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight $w_y$ of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        rank_weights: $\theta$, a `RankWeights` or a list.
        margin: $\eta$ > 0.
        num_trials: the most draws, or None for the exact rank.
        seed: `[2]` integers, with `num_trials` only; the same seed gives the same draws.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> loss = warp_loss([[1.0, 0.5, 0.75, 0.0]], [[0]], rank_weights=[1.0, 0.5])
        >>> loss.numpy()  # (1 + 0.5) / 2 * (0.5 + 0.75)
        array([0.9375], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)
    negatives = lists.negatives()
    of_ranks = get_rank_weights(rank_weights).first(lists.num_columns_of_items, lists.dtype)
    of_ranks = tf.concat([tf.zeros([1], lists.dtype), tf.cumsum(of_ranks)], axis=0)
    if num_trials is None:
        losses = _exact(negatives, of_ranks, margin)
    else:
        losses = _sampled(negatives, of_ranks, margin, num_trials, seed)
    return lists.keep_nan(lists.sum_of_positives(lists.relevance * losses))


def _exact(negatives, of_ranks, margin):
    violators = tf.stop_gradient(
        negatives.sum_over_items(lambda s, p: tf.cast(s - p > -margin, s.dtype), vanishes=True)
    )
    weight = tf.gather(of_ranks, tf.cast(violators, tf.int32))
    hinges = negatives.sum_over_items(lambda s, p: violation(s - p, margin), vanishes=True)
    return tf.math.divide_no_nan(weight, violators) * hinges


def _sampled(negatives, of_ranks, margin, num_trials, seed):
    up_to = tf.cumsum(tf.cast(negatives.mask, tf.int32), axis=-1)
    batch, n = tf.unstack(tf.shape(up_to))
    count = tf.cast(up_to[:, -1:], negatives.dtype)
    nth = tf.floor(uniform([batch, num_trials], seed, negatives.dtype) * count) + 1
    columns = searchsorted(up_to, tf.cast(nth, tf.int32))
    drawn = gather(negatives.scores, tf.minimum(columns, n - 1))

    highest_so_far = tf.stop_gradient(drawn)
    step = 1
    while step < num_trials:
        shifted = tf.pad(
            highest_so_far[:, :-step], [[0, 0], [step, 0]], constant_values=drawn.dtype.min
        )
        highest_so_far = tf.maximum(highest_so_far, shifted)
        step *= 2
    bounds = tf.stop_gradient(negatives.positive_scores) - margin
    first = searchsorted(highest_so_far, bounds, side="right")
    found = (first < num_trials) & (count > 0)
    first = tf.where(found, first, 0)
    rank = tf.floor(count / tf.cast(first + 1, count.dtype))
    violator = gather(drawn, first)
    hinges = violation(violator - negatives.positive_scores, margin)
    losses = tf.gather(of_ranks, tf.cast(rank, tf.int32)) * hinges
    return tf.where(found, losses, 0)
